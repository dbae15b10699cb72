//! Load balancing of a cluster: algorithm, hashing, slow start, localities.

use config::kinds::destination_rule::{
    ConsistentHash, HashAlgorithm, LbPolicy as Wanted, LoadBalancerSettings, SimpleLb, WarmupConfiguration,
};
use model::LocalityPreference;
use wire::envoy::config::cluster::v3::cluster::{
    LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig, RoundRobinLbConfig, SlowStartConfig,
    common_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig},
};
use wire::envoy::config::core::v3::{HealthStatus, HealthStatusSet, RuntimeDouble};
use wire::envoy::r#type::v3::Percent;
use wire::google::protobuf::UInt64Value;

use super::policy::Draft;
use crate::proto::duration;

const RING_SIZE: u64 = 1024;
const WARMUP_PERCENT: f64 = 10.0;
const WARMUP_AGGRESSION: f64 = 1.0;
/// Envoy requires a runtime key; this one is never set.
const NO_RUNTIME_KEY: &str = "(";

/// Not for clusters whose load balancer is fixed: there `settings` are ignored.
pub(super) fn apply(draft: &mut Draft, settings: Option<&LoadBalancerSettings>) {
    let warmup = settings.and_then(slow_start);
    let (policy, config) = match settings.and_then(|settings| settings.policy.as_ref()) {
        Some(Wanted::ConsistentHash(hash)) => {
            let (policy, config) = consistent_hash(hash);
            (policy, config.or(warmup.map(least_request)))
        }
        Some(Wanted::Simple(SimpleLb::Random)) => (LbPolicy::Random, None),
        Some(Wanted::Simple(SimpleLb::RoundRobin)) => {
            let config = |slow| LbConfig::RoundRobinLbConfig(RoundRobinLbConfig { slow_start_config: Some(slow) });
            (LbPolicy::RoundRobin, warmup.map(config))
        }
        _ => (LbPolicy::LeastRequest, warmup.map(least_request)),
    };
    draft.cluster.lb_policy = policy.into();
    draft.cluster.lb_config = config;
}

/// Locality weights apply if distribution or failover is configured and possible.
pub(super) fn apply_locality(draft: &mut Draft, locality: &LocalityPreference) {
    let (setting, forced) = match locality {
        LocalityPreference::Off => return,
        LocalityPreference::Setting { setting, forced } => (setting, forced),
        LocalityPreference::Zones(setting) => {
            draft.common_lb_config().locality_config_specifier =
                Some(LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig {
                    routing_enabled: (setting.enabled == Some(false)).then_some(Percent { value: 0.0 }),
                    min_cluster_size: setting.min_cluster_size.map(|size| UInt64Value { value: size.into() }),
                    ..ZoneAwareLbConfig::default()
                }));
            return;
        }
    };
    let fails_over = *forced || draft.cluster.outlier_detection.is_some();
    let ordered = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
    if !setting.distribute.is_empty() || (fails_over && ordered) {
        draft.common_lb_config().locality_config_specifier =
            Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {}));
    }
}

/// Draining endpoints stay for sticky requests.
pub(super) fn keep_draining(draft: &mut Draft) {
    let statuses =
        [HealthStatus::Healthy, HealthStatus::Draining, HealthStatus::Unknown, HealthStatus::Degraded].map(i32::from);
    draft.common_lb_config().override_host_status = Some(HealthStatusSet { statuses: statuses.into() });
}

fn consistent_hash(hash: &ConsistentHash) -> (LbPolicy, Option<LbConfig>) {
    let ring = |size| {
        let minimum_ring_size = Some(UInt64Value { value: size });
        LbConfig::RingHashLbConfig(RingHashLbConfig { minimum_ring_size, ..RingHashLbConfig::default() })
    };
    let given = |size: u64| Some(size).filter(|&size| size > 0);
    match &hash.algorithm {
        Some(HashAlgorithm::MagLev(maglev)) => {
            let config = |value| LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: Some(UInt64Value { value }) });
            (LbPolicy::Maglev, given(maglev.table_size).map(config))
        }
        Some(HashAlgorithm::RingHash(wanted)) => (LbPolicy::RingHash, given(wanted.minimum_ring_size).map(ring)),
        None => (LbPolicy::RingHash, Some(ring(given(hash.minimum_ring_size).unwrap_or(RING_SIZE)))),
    }
}

fn least_request(slow: SlowStartConfig) -> LbConfig {
    let config = LeastRequestLbConfig { slow_start_config: Some(slow), ..LeastRequestLbConfig::default() };
    LbConfig::LeastRequestLbConfig(config)
}

fn slow_start(settings: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    match (&settings.warmup, &settings.warmup_duration_secs) {
        (Some(warmup), _) => Some(slow_start_config(warmup)),
        (None, Some(window)) => {
            Some(SlowStartConfig { slow_start_window: Some(duration(window)), ..SlowStartConfig::default() })
        }
        (None, None) => None,
    }
}

fn slow_start_config(warmup: &WarmupConfiguration) -> SlowStartConfig {
    SlowStartConfig {
        slow_start_window: warmup.duration.as_ref().map(duration),
        aggression: Some(RuntimeDouble {
            default_value: warmup.aggression.unwrap_or(WARMUP_AGGRESSION),
            runtime_key: NO_RUNTIME_KEY.into(),
        }),
        min_weight_percent: Some(Percent { value: warmup.minimum_percent.unwrap_or(WARMUP_PERCENT) }),
    }
}

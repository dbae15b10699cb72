//! The traffic policy of one port or subset, and its locality preference.

use config::kinds::client_tls::ClientTlsMode;
use config::kinds::destination_rule::{
    LbPolicy, LocalityLoadBalancerSetting, OutlierDetection, PortTrafficPolicy, SimpleLb, TrafficPolicy,
    ZoneAwareLoadBalancerSetting,
};
use config::mesh::MeshConfig;

use super::MergedDestinationRule;
use crate::service::Service;

impl MergedDestinationRule {
    /// The policy of the whole service on a port: the port-level settings alone where there are any, else the top level.
    pub fn port_policy(&self, port: u16) -> Option<TrafficPolicy> {
        self.policy.as_ref().map(|policy| on_port(policy, port).0)
    }

    /// The policy of a subset on a port: its own blocks over those of the service.
    pub fn subset_policy(&self, subset: &str, port: u16) -> Option<TrafficPolicy> {
        let top = self.port_policy(port);
        let Some(own) = self.subset(subset).and_then(|subset| subset.traffic_policy.as_deref()) else { return top };
        let (own, by_port) = on_port(own, port);
        let Some(top) = top else { return Some(own) };
        Some(TrafficPolicy {
            connection_pool: own.connection_pool.or(top.connection_pool.filter(|_| !by_port)),
            outlier_detection: own.outlier_detection.or(top.outlier_detection.filter(|_| !by_port)),
            load_balancer: own.load_balancer.or(top.load_balancer.filter(|_| !by_port)),
            tls: own.tls.or(top.tls.filter(|_| !by_port)),
            tunnel: own.tunnel.or(top.tunnel),
            proxy_protocol: own.proxy_protocol.or(top.proxy_protocol),
            retry_budget: own.retry_budget.or(top.retry_budget),
            port_level_settings: Vec::new(),
        })
    }

    /// `subset` empty: the whole service.
    pub fn effective(&self, subset: &str, port: u16) -> Option<TrafficPolicy> {
        if subset.is_empty() { self.port_policy(port) } else { self.subset_policy(subset, port) }
    }

    /// The TLS mode for endpoint metadata: of the service or of the subset alone, port-level before top-level settings.
    pub fn endpoint_tls(&self, subset: &str, port: u16) -> Option<ClientTlsMode> {
        let policy =
            if subset.is_empty() { self.policy.as_deref()? } else { self.subset(subset)?.traffic_policy.as_deref()? };
        let by_port = settings(policy, port).and_then(|settings| settings.tls.as_ref());
        by_port.or(policy.tls.as_ref()).map(|tls| tls.mode)
    }
}

/// The policy on a port; `true`: from port-level settings, which inherit nothing.
fn on_port(policy: &TrafficPolicy, port: u16) -> (TrafficPolicy, bool) {
    match settings(policy, port) {
        None => (TrafficPolicy { port_level_settings: Vec::new(), ..policy.clone() }, false),
        Some(own) => {
            let policy = TrafficPolicy {
                connection_pool: own.connection_pool.clone(),
                outlier_detection: own.outlier_detection.clone(),
                load_balancer: own.load_balancer.clone(),
                tls: own.tls.clone(),
                ..TrafficPolicy::default()
            };
            (policy, true)
        }
    }
}

fn settings(policy: &TrafficPolicy, port: u16) -> Option<&PortTrafficPolicy> {
    let wanted = u32::from(port);
    policy.port_level_settings.iter().find(|settings| settings.port.is_some_and(|port| port.number == wanted))
}

/// `simple: PASSTHROUGH`: the proxy connects to the original destination.
pub fn is_passthrough(policy: Option<&TrafficPolicy>) -> bool {
    let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
    balancer.is_some_and(|balancer| balancer.policy == Some(LbPolicy::Simple(SimpleLb::Passthrough)))
}

/// The locality preference of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalityPreference {
    /// No preference.
    Off,
    Setting {
        setting: LocalityLoadBalancerSetting,
        /// Failover priorities are used without outlier detection: readiness decides.
        forced: bool,
    },
    /// Zone-aware routing within the client's region; other regions only on failover.
    Zones(ZoneAwareLoadBalancerSetting),
}

impl LocalityPreference {
    /// The rule's settings, zone-aware before locality settings, then the service's traffic distribution, then the mesh's settings.
    pub fn of(policy: Option<&TrafficPolicy>, service: &Service, config: &MeshConfig) -> Self {
        let balancer = policy.and_then(|policy| policy.load_balancer.as_ref());
        let own = balancer.and_then(|balancer| balancer.locality_lb_setting.as_ref());
        let zones = balancer.and_then(|balancer| balancer.zone_aware_lb_setting.as_ref());
        if let Some(setting) = zones {
            return Self::Zones(setting.clone());
        }
        match (own, service.distribution) {
            (Some(setting), _) => Self::unless_off(setting),
            (None, Some(distribution)) => {
                let labels = distribution.labels().iter().map(|&label| label.to_owned()).collect();
                let setting = LocalityLoadBalancerSetting { failover_priority: labels, ..Default::default() };
                Self::Setting { setting, forced: true }
            }
            (None, None) => match &config.zone_aware_lb_setting {
                Some(setting) => Self::Zones(setting.clone()),
                None => Self::unless_off(&config.locality_lb_setting),
            },
        }
    }

    fn unless_off(setting: &LocalityLoadBalancerSetting) -> Self {
        if setting.enabled == Some(false) {
            Self::Off
        } else {
            Self::Setting { setting: setting.clone(), forced: false }
        }
    }
}

/// Outlier detection of a cluster: the rule's, else the mesh's default.
pub fn outlier_detection<'a>(
    policy: Option<&'a TrafficPolicy>,
    config: &'a MeshConfig,
) -> Option<&'a OutlierDetection> {
    let default = || config.default_traffic_policy.as_ref()?.outlier_detection.as_ref();
    policy.and_then(|policy| policy.outlier_detection.as_ref()).or_else(default)
}

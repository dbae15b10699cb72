//! Load balancing of a DestinationRule: algorithm, consistent hashing, warm-up, locality and zone preferences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::kinds::one_of::{Conflict, one_of};
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawLoadBalancer", rename_all = "camelCase")]
pub struct LoadBalancerSettings {
    #[serde(flatten)]
    pub policy: Option<LbPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    /// Deprecated spelling of `warmup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup_duration_secs: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmup: Option<WarmupConfiguration>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LbPolicy {
    Simple(SimpleLb),
    ConsistentHash(ConsistentHash),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawLoadBalancer {
    simple: Option<SimpleLb>,
    consistent_hash: Option<ConsistentHash>,
    locality_lb_setting: Option<LocalityLoadBalancerSetting>,
    zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
    warmup_duration_secs: Option<Duration>,
    warmup: Option<WarmupConfiguration>,
}

impl TryFrom<RawLoadBalancer> for LoadBalancerSettings {
    type Error = Conflict;

    fn try_from(raw: RawLoadBalancer) -> Result<Self, Conflict> {
        let policy = one_of([
            ("simple", raw.simple.map(LbPolicy::Simple)),
            ("consistentHash", raw.consistent_hash.map(LbPolicy::ConsistentHash)),
        ])?;
        Ok(LoadBalancerSettings {
            policy,
            locality_lb_setting: raw.locality_lb_setting,
            zone_aware_lb_setting: raw.zone_aware_lb_setting,
            warmup_duration_secs: raw.warmup_duration_secs,
            warmup: raw.warmup,
        })
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SimpleLb {
    #[default]
    Unspecified,
    /// Deprecated name of `LeastRequest`.
    LeastConn,
    Random,
    Passthrough,
    RoundRobin,
    LeastRequest,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawConsistentHash", rename_all = "camelCase")]
pub struct ConsistentHash {
    #[serde(flatten)]
    pub key: Option<HashKey>,
    /// `None`: a ring of at least `minimum_ring_size` entries.
    #[serde(flatten)]
    pub algorithm: Option<HashAlgorithm>,
    /// Deprecated spelling of the ring hash's own size.
    #[serde(skip_serializing_if = "is_default")]
    pub minimum_ring_size: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum HashKey {
    #[serde(rename = "httpHeaderName")]
    HeaderName(String),
    #[serde(rename = "httpCookie")]
    Cookie(HttpCookie),
    #[serde(rename = "useSourceIp")]
    SourceIp(bool),
    #[serde(rename = "httpQueryParameterName")]
    QueryParameterName(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum HashAlgorithm {
    #[serde(rename = "ringHash")]
    RingHash(RingHash),
    #[serde(rename = "maglev")]
    MagLev(MagLev),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawConsistentHash {
    http_header_name: Option<String>,
    http_cookie: Option<HttpCookie>,
    use_source_ip: Option<bool>,
    http_query_parameter_name: Option<String>,
    ring_hash: Option<RingHash>,
    maglev: Option<MagLev>,
    minimum_ring_size: u64,
}

impl TryFrom<RawConsistentHash> for ConsistentHash {
    type Error = Conflict;

    fn try_from(raw: RawConsistentHash) -> Result<Self, Conflict> {
        let key = one_of([
            ("httpHeaderName", raw.http_header_name.map(HashKey::HeaderName)),
            ("httpCookie", raw.http_cookie.map(HashKey::Cookie)),
            ("useSourceIp", raw.use_source_ip.map(HashKey::SourceIp)),
            ("httpQueryParameterName", raw.http_query_parameter_name.map(HashKey::QueryParameterName)),
        ])?;
        let algorithm = one_of([
            ("ringHash", raw.ring_hash.map(HashAlgorithm::RingHash)),
            ("maglev", raw.maglev.map(HashAlgorithm::MagLev)),
        ])?;
        Ok(ConsistentHash { key, algorithm, minimum_ring_size: raw.minimum_ring_size })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpCookie {
    pub name: String,
    pub path: String,
    /// `None`: the proxy does not generate the cookie.
    pub ttl: Option<Duration>,
    pub attributes: Vec<CookieAttribute>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CookieAttribute {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RingHash {
    /// 0: 1024.
    pub minimum_ring_size: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MagLev {
    /// 0: Envoy's default.
    pub table_size: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WarmupConfiguration {
    pub duration: Option<Duration>,
    /// `None`: 10.
    pub minimum_percent: Option<f64>,
    /// `None`: 1.
    pub aggression: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalityLoadBalancerSetting {
    pub distribute: Vec<Distribute>,
    pub failover: Vec<Failover>,
    pub failover_priority: Vec<String>,
    /// `None`: enabled, where the setting is present.
    pub enabled: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Distribute {
    /// `region/zone/subzone`; `*` matches the rest.
    pub from: String,
    /// Locality to percent; the percentages add up to 100.
    pub to: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failover {
    pub from: String,
    pub to: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneAwareLoadBalancerSetting {
    /// `None`: enabled, where the setting is present.
    pub enabled: Option<bool>,
    pub failover: Vec<Failover>,
    pub failover_priority: Vec<String>,
    pub min_cluster_size: Option<u32>,
}

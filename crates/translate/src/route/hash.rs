//! Hash policies of routes, by the destination's rule.

use config::kinds::destination_rule::{ConsistentHash, HashKey, LbPolicy, LoadBalancerSettings, TrafficPolicy};
use model::MergedDestinationRule;
use wire::envoy::config::route::v3::route_action::{
    HashPolicy,
    hash_policy::{ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter},
};

use crate::proto::duration;

/// Whether a rule affects routes: only its consistent hash does.
pub fn affects_routes(rule: &MergedDestinationRule) -> bool {
    let sticky = |policy: &TrafficPolicy| {
        let ports = policy.port_level_settings.iter().map(|port| port.load_balancer.as_ref());
        ports.chain([policy.load_balancer.as_ref()]).any(|balancer| hash(balancer).is_some())
    };
    let subsets = rule.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
    rule.policy.iter().chain(subsets).any(|policy| sticky(policy))
}

/// Of a service's default route on a port: the port-level setting, else the top-level one.
pub(super) fn of_port(rule: &MergedDestinationRule, port: u16) -> Option<&ConsistentHash> {
    let policy = rule.policy.as_ref()?;
    on_port(policy, port).or_else(|| hash(policy.load_balancer.as_ref()))
}

/// Of a route's destination: the subset's port, the subset, the port, the top level.
pub(super) fn of_destination<'a>(
    rule: &'a MergedDestinationRule,
    subset: &str,
    port: Option<u16>,
) -> Option<&'a ConsistentHash> {
    let top = rule.policy.as_deref();
    let own = rule.subset(subset).and_then(|subset| subset.traffic_policy.as_deref());
    let at = |policy: Option<&'a TrafficPolicy>| on_port(policy?, port?);
    let all = |policy: Option<&'a TrafficPolicy>| hash(policy?.load_balancer.as_ref());
    at(own).or_else(|| all(own)).or_else(|| at(top)).or_else(|| all(top))
}

/// `None`: the hash has no key.
pub(super) fn policy(hash: &ConsistentHash) -> Option<HashPolicy> {
    let specifier = match hash.key.as_ref().filter(|key| !is_nameless(key))? {
        HashKey::HeaderName(name) => PolicySpecifier::Header(Header { header_name: name.clone(), ..Header::default() }),
        HashKey::Cookie(cookie) => PolicySpecifier::Cookie(Cookie {
            name: cookie.name.clone(),
            ttl: cookie.ttl.as_ref().map(duration),
            path: cookie.path.clone(),
            attributes: cookie
                .attributes
                .iter()
                .map(|one| CookieAttribute { name: one.name.clone(), value: one.value.clone() })
                .collect(),
        }),
        HashKey::SourceIp(source_ip) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: *source_ip })
        }
        HashKey::QueryParameterName(name) => PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() }),
    };
    Some(HashPolicy { policy_specifier: Some(specifier), ..HashPolicy::default() })
}

/// Envoy rejects an empty name.
fn is_nameless(key: &HashKey) -> bool {
    match key {
        HashKey::HeaderName(name) | HashKey::QueryParameterName(name) => name.is_empty(),
        HashKey::Cookie(cookie) => cookie.name.is_empty(),
        HashKey::SourceIp(_) => false,
    }
}

fn on_port(policy: &TrafficPolicy, port: u16) -> Option<&ConsistentHash> {
    let mut settings = policy.port_level_settings.iter();
    let settings = settings.find(|one| one.port.is_some_and(|own| own.number == u32::from(port)))?;
    hash(settings.load_balancer.as_ref())
}

fn hash(balancer: Option<&LoadBalancerSettings>) -> Option<&ConsistentHash> {
    match balancer?.policy.as_ref()? {
        LbPolicy::ConsistentHash(hash) => Some(hash),
        LbPolicy::Simple(_) => None,
    }
}

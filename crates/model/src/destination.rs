//! DestinationRules by host: the rules of a namespace merged, and the one that applies to a client.
//! `policy` computes the traffic policy of one port or subset.

mod lookup;
mod merge;
mod policy;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kinds::destination_rule::{
    DestinationRule, LoadBalancerSettings, LocalityLoadBalancerSetting, Subset, TrafficPolicy,
};
use config::labels::Labels;
use config::mesh::MeshConfig;
use imbl::OrdMap;

use crate::service::{Distribution, Service};

pub(crate) use lookup::DestinationRules;
pub use policy::{LocalityPreference, is_passthrough, outlier_detection};

/// One or several merged DestinationRules of one host and namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedDestinationRule {
    pub host: Host,
    pub policy: Option<Arc<TrafficPolicy>>,
    /// With unique names.
    pub subsets: Vec<Subset>,
    /// Applies only to clients of the rule's own namespace with these labels; `None`: all clients.
    pub selector: Option<Labels>,
    /// The first rule, then those merged into it.
    pub made_from: Vec<ObjectId>,
    exports: merge::Exports,
}

impl MergedDestinationRule {
    pub fn subset(&self, name: &str) -> Option<&Subset> {
        self.subsets.iter().find(|subset| subset.name == name)
    }

    /// The rule named in Envoy metadata.
    pub fn id(&self) -> &ObjectId {
        &self.made_from[0]
    }
}

/// The rules for the services of a scope, by host; those with a selector first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScopeDestinations(OrdMap<Host, Vec<Arc<MergedDestinationRule>>>);

impl ScopeDestinations {
    pub(crate) fn new(rules: &DestinationRules, namespace: &str, services: &[Arc<Service>]) -> Self {
        let mut found = OrdMap::new();
        for service in services {
            if !found.contains_key(&service.host) {
                let rules = rules.of(namespace, service);
                if !rules.is_empty() {
                    found.insert(service.host.clone(), rules);
                }
            }
        }
        Self(found)
    }

    /// Looks up the rules of a service again. Returns whether they changed.
    pub(crate) fn refresh(&mut self, rules: &DestinationRules, namespace: &str, service: &Service) -> bool {
        let now = rules.of(namespace, service);
        if self.of_host(&service.host) == now {
            return false;
        }
        match now.is_empty() {
            true => drop(self.0.remove(&service.host)),
            false => drop(self.0.insert(service.host.clone(), now)),
        }
        true
    }

    pub(crate) fn of_host(&self, host: &Host) -> &[Arc<MergedDestinationRule>] {
        self.0.get(host).map(Vec::as_slice).unwrap_or_default()
    }

    /// The rule for a client with these labels.
    pub(crate) fn of_client(
        &self,
        host: &Host,
        namespace: &str,
        labels: &Labels,
    ) -> Option<&Arc<MergedDestinationRule>> {
        let rules = self.0.get(host)?;
        let selects = |rule: &&Arc<MergedDestinationRule>| {
            let own = *rule.id().namespace == *namespace;
            own && rule.selector.as_ref().is_some_and(|wanted| labels.contains_all(wanted))
        };
        rules.iter().find(selects).or_else(|| self.of_everybody(host))
    }

    /// Rules with a selector concern clients only; inbound configuration uses the others.
    pub(crate) fn of_everybody(&self, host: &Host) -> Option<&Arc<MergedDestinationRule>> {
        self.0.get(host)?.iter().rev().find(|rule| rule.selector.is_none())
    }
}

/// Facts of a client that some rule, route or service refers to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClientFacts {
    pub(crate) labels: BTreeSet<String>,
    pub(crate) locality: bool,
}

impl ClientFacts {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a DestinationRule>, config: &MeshConfig) -> Self {
        let mut facts = Self::default();
        facts.read_setting(&config.locality_lb_setting);
        facts.locality |= config.zone_aware_lb_setting.is_some();
        let defaults = config.default_traffic_policy.as_ref();
        facts.locality |= defaults.is_some_and(|policy| policy.outlier_detection.is_some());
        for rule in rules {
            let selector = rule.workload_selector.iter().flat_map(|selector| selector.match_labels.iter());
            facts.labels.extend(selector.map(|(key, _)| key.to_owned()));
            let subsets = rule.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
            rule.traffic_policy.iter().chain(subsets).for_each(|policy| facts.read_policy(policy));
        }
        facts
    }

    /// A service with a traffic distribution reads the client's locality.
    pub(crate) fn read_distributions(&mut self, services: &[Arc<Service>]) {
        let preferences = services.iter().filter_map(|service| service.distribution);
        self.labels.extend(preferences.flat_map(Distribution::labels).map(|&key| key.to_owned()));
    }

    fn read_policy(&mut self, policy: &TrafficPolicy) {
        let ports = &policy.port_level_settings;
        self.locality |=
            policy.outlier_detection.is_some() || ports.iter().any(|port| port.outlier_detection.is_some());
        for setting in policy_balancers(policy).filter_map(|balancer| balancer.locality_lb_setting.as_ref()) {
            self.locality = true;
            self.read_setting(setting);
        }
        self.locality |= policy_balancers(policy).any(|balancer| balancer.zone_aware_lb_setting.is_some());
    }

    fn read_setting(&mut self, setting: &LocalityLoadBalancerSetting) {
        self.locality |= !setting.distribute.is_empty();
        let keys = setting.failover_priority.iter().filter_map(|wanted| wanted.split('=').next());
        self.labels.extend(keys.map(str::to_owned));
    }
}

fn policy_balancers(policy: &TrafficPolicy) -> impl Iterator<Item = &LoadBalancerSettings> {
    let ports = policy.port_level_settings.iter().filter_map(|port| port.load_balancer.as_ref());
    policy.load_balancer.iter().chain(ports)
}

#[cfg(test)]
mod tests;

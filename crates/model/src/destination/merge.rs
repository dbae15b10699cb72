//! Merges DestinationRules of one host that apply to the same clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::destination_rule::DestinationRule;
use config::meta::Object;

use super::MergedDestinationRule;

/// `exportTo` as written: rules merge only where the sets are equal. Empty: the mesh's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exports(BTreeSet<String>);

impl Exports {
    /// A rule with a workload selector is never exported.
    pub(super) fn new(rule: &DestinationRule) -> Self {
        match rule.workload_selector {
            Some(_) => Self(BTreeSet::from([".".to_owned()])),
            None => Self(rule.export_to.iter().cloned().collect()),
        }
    }

    /// It applies to clients of the rule's own namespace.
    pub(super) fn applies_to_own_namespace(&self, own: &str) -> bool {
        self.0.is_empty() || self.has("*") || self.has(".") || self.has(own)
    }

    /// It is not exported to other namespaces.
    pub(super) fn is_private(&self, own: &str, default: &[String]) -> bool {
        if self.0.is_empty() {
            return default.iter().any(|entry| entry == ".");
        }
        self.0.len() == 1 && (self.has(".") || self.has(own))
    }

    pub(super) fn allows(&self, client: &str) -> bool {
        self.0.is_empty() || self.has("*") || self.has(client)
    }

    fn has(&self, entry: &str) -> bool {
        self.0.contains(entry)
    }

    fn is_wider_than(&self, other: &Self) -> bool {
        !other.0.is_empty() && self.0.is_superset(&other.0)
    }
}

impl MergedDestinationRule {
    pub(super) fn of_rule(object: &Object<DestinationRule>, host: Host) -> Self {
        let mut destination = Self {
            host,
            policy: object.spec.traffic_policy.clone(),
            subsets: Vec::new(),
            selector: object.spec.workload_selector.as_ref().map(|selector| selector.match_labels.clone()),
            made_from: vec![id(object)],
            exports: Exports::new(&object.spec),
        };
        destination.add_subsets(&object.spec);
        destination
    }

    pub(super) fn exports(&self) -> &Exports {
        &self.exports
    }

    /// The first top-level policy and the first subset of a name win.
    fn take(&mut self, object: &Object<DestinationRule>) {
        self.made_from.push(id(object));
        self.add_subsets(&object.spec);
        if self.policy.is_none() {
            self.policy.clone_from(&object.spec.traffic_policy);
        }
    }

    fn add_subsets(&mut self, rule: &DestinationRule) {
        for subset in &rule.subsets {
            if self.subset(&subset.name).is_none() {
                self.subsets.push(subset.clone());
            }
        }
    }
}

/// Merges a rule into each rule of its host with the same or a narrower `exportTo`, and adds it separately unless one has exactly the same.
pub(super) fn add(rules: &mut Vec<Arc<MergedDestinationRule>>, object: &Object<DestinationRule>, host: &Host) {
    let own = MergedDestinationRule::of_rule(object, host.clone());
    let mut beside = true;
    for rule in rules.iter_mut() {
        let (equal, wider) = (own.exports == rule.exports, own.exports.is_wider_than(&rule.exports));
        if !equal && !wider {
            beside = true;
            continue;
        }
        beside = !equal;
        match (&rule.selector, &own.selector) {
            (Some(current), Some(new)) if current != new => {
                beside = true;
                continue;
            }
            (Some(_), Some(_)) | (None, None) => beside = false,
            _ => {}
        }
        Arc::make_mut(rule).take(object);
    }
    if beside {
        rules.push(Arc::new(own));
    }
}

fn id(object: &Object<DestinationRule>) -> ObjectId {
    ObjectId { kind: Kind::DestinationRule, namespace: object.meta.namespace.clone(), name: object.meta.name.clone() }
}

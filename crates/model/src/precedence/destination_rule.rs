//! Which DestinationRules apply to the imported hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::destination_rule::DestinationRule;
use config::meta::Object;

use super::{Precedence, id, shown};
use crate::destination::MergedDestinationRule;
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::service::Service;

/// For each imported host that some rule is for.
pub(super) fn decisions(mesh: &Mesh, placement: &Placement) -> Vec<Precedence> {
    let mut by_host: BTreeMap<&Host, Vec<&Object<DestinationRule>>> = BTreeMap::new();
    for rule in mesh.objects.destination_rules.values() {
        let host = host_of(mesh, rule);
        let services = placement.scope.services.iter();
        // Most rules are for one host: a lookup instead of a visit of all services.
        match host.is_wildcard() {
            true => services
                .filter(|service| service.host.is_subset_of(&host))
                .for_each(|service| by_host.entry(&service.host).or_default().push(rule)),
            false => {
                if let Some(service) = placement.scope.service(&host) {
                    by_host.entry(&service.host).or_default().push(rule);
                }
            }
        }
    }
    by_host.into_iter().filter_map(|(host, rules)| decision(mesh, placement, host, &rules)).collect()
}

fn decision(mesh: &Mesh, placement: &Placement, host: &Host, rules: &[&Object<DestinationRule>]) -> Option<Precedence> {
    let service = placement.scope.service(host)?;
    let merged = placement.destination_rule(host);
    let winners: Vec<ObjectId> = merged.map(|merged| merged.made_from.clone()).unwrap_or_default();
    let losers = rules.iter().map(|rule| (id(Kind::DestinationRule, &rule.meta), rule));
    let losers = losers.filter(|(id, _)| !winners.contains(id));
    let others = losers.map(|(id, rule)| (id, why_not(mesh, placement, service, merged, rule)));
    let others: Vec<_> = others.collect();
    if winners.is_empty() && others.is_empty() {
        return None;
    }
    Some(Precedence {
        about: format!("traffic policy of host {host}"),
        why: why(mesh, placement, service, &winners),
        winners,
        others,
    })
}

fn why(mesh: &Mesh, placement: &Placement, service: &Service, winners: &[ObjectId]) -> String {
    let Some(first) = winners.first() else { return "no DestinationRule applies: defaults and mesh config".into() };
    let level = match () {
        () if first.namespace == placement.proxy.namespace => "the client's namespace",
        () if first.namespace == service.namespace => "the service's namespace",
        () if *first.namespace == *mesh.config.root_namespace => "the root namespace",
        () => "another namespace",
    };
    match winners.len() {
        1 => format!("{first} of {level} applies"),
        _ => format!(
            "{first} of {level} applies, merged with younger ones: the first trafficPolicy and the first subset of a name win"
        ),
    }
}

fn why_not(
    mesh: &Mesh,
    placement: &Placement,
    service: &Service,
    winner: Option<&Arc<MergedDestinationRule>>,
    rule: &Object<DestinationRule>,
) -> String {
    let (own, root) = (&placement.proxy.namespace, &mesh.config.root_namespace);
    let there = &rule.meta.namespace;
    if let Some(selector) = &rule.spec.workload_selector
        && (there != own || !placement.topology_labels.contains_all(&selector.match_labels))
    {
        return format!("its workloadSelector ({}) does not select this workload", shown(&selector.match_labels));
    }
    if there != own && *there != service.namespace && **there != **root {
        return "only rules of the client's, the service's and the root namespace are looked up".into();
    }
    let Some(winner) = winner else { return format!("it is not exported to namespace {own}") };
    let level = |namespace: &str| match () {
        () if *namespace == **own => (0, "the client's"),
        () if *namespace == *service.namespace => (1, "the service's"),
        () => (2, "the root"),
    };
    let (winning, losing) = (level(&winner.id().namespace), level(there));
    match () {
        () if winning.0 < losing.0 => {
            format!("{} is of {} namespace, which wins over {} namespace", winner.id(), winning.1, losing.1)
        }
        () if winner.host != host_of(mesh, rule) => {
            format!("{} is for {}, which is more specific", winner.id(), winner.host)
        }
        () if winning.0 > losing.0 => format!("it is not exported to namespace {own}"),
        () if winner.selector.is_some() => format!("{} selects this workload", winner.id()),
        () => format!("it is exported to other namespaces than {}, so that the two are not merged", winner.id()),
    }
}

fn host_of(mesh: &Mesh, rule: &Object<DestinationRule>) -> Host {
    Host::resolve_short(&rule.spec.host, &rule.meta.namespace, &mesh.env.domain)
}

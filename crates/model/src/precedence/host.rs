//! Hosts that several objects claim: services of several namespaces, and VirtualServices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;

use super::Precedence;
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::service::Service;
use crate::virtual_service::ResolvedVirtualService;

type Rule = Arc<ResolvedVirtualService>;

/// Imported hosts that several objects declare.
pub(super) fn of_services(mesh: &Mesh, placement: &Placement) -> Vec<Precedence> {
    let own = &placement.proxy.namespace;
    let contested = placement.scope.services.iter().filter_map(|winner| {
        let others: Vec<_> =
            mesh.scopes.ranking.of_host(&winner.host).filter(|it| it.made_from != winner.made_from).collect();
        (!others.is_empty()).then(|| Precedence {
            about: format!("host {}", winner.host),
            winners: vec![winner.made_from.clone()],
            why: format!("{} declares the host for this client", winner.made_from),
            others: others.into_iter().map(|it| (it.made_from.clone(), why_not_service(it, winner, own))).collect(),
        })
    });
    contested.collect()
}

fn why_not_service(loser: &Service, winner: &Service, own: &str) -> String {
    match () {
        () if !loser.visibility.allows(own) => format!("it is not exported to namespace {own}"),
        () if *winner.namespace == *own && *loser.namespace != *own => {
            "a service of the client's namespace wins".into()
        }
        () if winner.is_kubernetes() && !loser.is_kubernetes() => {
            "a Kubernetes Service wins over a ServiceEntry".into()
        }
        () if winner.namespace == loser.namespace => {
            "its ports are added where they are missing, if the two are alike".into()
        }
        () => format!("{} comes first, by what is exported and by age", winner.made_from),
    }
}

/// Hosts that several VirtualServices of this client claim, exactly or by a wildcard.
pub(super) fn of_virtual_services(mesh: &Mesh, placement: &Placement) -> Vec<Precedence> {
    let listeners: Vec<Vec<Rule>> = match placement.is_gateway() {
        true => {
            let gateways = placement.gateway().gateways.iter();
            gateways.map(|name| mesh.gateway_routes(&placement.proxy.namespace, name)).collect()
        }
        false => placement.scope.egress.iter().map(|it| it.virtual_services.iter().cloned().collect()).collect(),
    };
    let mut found: BTreeMap<String, Precedence> = BTreeMap::new();
    for rules in &listeners {
        for decision in contested(rules, placement) {
            found.entry(decision.about.clone()).or_insert(decision);
        }
    }
    found.into_values().collect()
}

/// `rules`: in order of precedence.
fn contested(rules: &[Rule], placement: &Placement) -> Vec<Precedence> {
    let exact: BTreeSet<&Host> = rules.iter().flat_map(|rule| &rule.hosts).filter(|host| !host.is_wildcard()).collect();
    let wild: BTreeSet<&Host> = rules.iter().flat_map(|rule| &rule.hosts).filter(|host| host.is_wildcard()).collect();
    let hosts = exact.into_iter().chain(wild);
    hosts.filter_map(|host| decision(host, rules, placement)).collect()
}

fn decision(host: &Host, rules: &[Rule], placement: &Placement) -> Option<Precedence> {
    let claims = |rule: &&Rule| rule.hosts.contains(host);
    let (winner, rest) = (rules.iter().find(claims)?, rules.iter().filter(claims).skip(1));
    let mut others: Vec<(ObjectId, String)> =
        rest.map(|loser| (loser.made_from[0].clone(), why_not(loser, winner, placement))).collect();
    let wider =
        |rule: &&Rule| !claims(rule) && rule.hosts.iter().any(|own| own.is_wildcard() && host.is_subset_of(own));
    let less = format!("its wildcard is less specific than {host}");
    others.extend(rules.iter().filter(wider).map(|loser| (loser.made_from[0].clone(), less.clone())));
    (!others.is_empty()).then(|| Precedence {
        about: format!("routes of host {host}"),
        winners: vec![winner.made_from[0].clone()],
        why: format!("the routes of {} come first", winner.made_from[0]),
        others,
    })
}

fn why_not(loser: &ResolvedVirtualService, winner: &ResolvedVirtualService, placement: &Placement) -> String {
    let (first, own) = (format!("{}/{}", winner.namespace, winner.name), &placement.proxy.namespace);
    let (winning, losing) = (winner.rank(own), loser.rank(own));
    let reason = match winning {
        Some(0) if winning < losing => format!("{first} is private to namespace {own}"),
        _ if winning < losing => format!("{first} is exported to namespace {own} by name"),
        _ if winner.is_older_than(loser) => format!("{first} is older"),
        _ => format!("{first} is as old, and its name comes first"),
    };
    match placement.is_gateway() {
        true => format!("{reason}: the routes of this one follow"),
        false => format!("{reason}: the routes of this one are used only where {first} has none for the client"),
    }
}

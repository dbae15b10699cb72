//! Objects that are attached to workloads and all apply: EnvoyFilters, AuthorizationPolicies, RequestAuthentications, Telemetry; and merged Gateways.

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::meta::Object;
use config::store::Table;

use super::{Precedence, id};
use crate::mesh::Mesh;
use crate::placement::Placement;
use crate::policy::WorkloadPolicy;
use crate::policy::attachment::{SelectsWorkloads, applies};

/// One for each kind that has objects in the workload's or the root namespace.
pub(super) fn decisions(mesh: &Mesh, placement: &Placement) -> Vec<Precedence> {
    let objects = &mesh.objects;
    let found = [
        filters(mesh, placement),
        authorization(mesh, placement),
        attached(
            mesh,
            placement,
            (Kind::RequestAuthentication, &objects.request_authentications),
            "accepted tokens",
            |winners| format!("{winners} apply: a token of any of them is accepted"),
        ),
        telemetry(placement),
        gateways(placement),
    ];
    found.into_iter().flatten().collect()
}

fn filters(mesh: &Mesh, placement: &Placement) -> Option<Precedence> {
    let decision = attached(
        mesh,
        placement,
        (Kind::EnvoyFilter, &mesh.objects.envoy_filters),
        "patches of EnvoyFilters",
        String::from,
    )?;
    let patches = &placement.patches;
    let all = patches.outbound.iter().chain(patches.inbound.iter()).chain(patches.extensions.iter());
    let used: std::collections::BTreeSet<&ObjectId> = all.map(|patch| &patch.id.object).collect();
    let (winners, idle): (Vec<ObjectId>, Vec<ObjectId>) =
        decision.winners.into_iter().partition(|it| used.contains(it));
    let idle =
        idle.into_iter().map(|it| (it, "no patch of it is for this kind, version or metadata of proxy".to_owned()));
    let why = match winners.len() {
        0 => "no EnvoyFilter applies".to_owned(),
        _ => format!(
            "{} apply, by priority; among equals those of the root namespace first, then the oldest: later ones see what earlier ones made",
            listed(&winners)
        ),
    };
    Some(Precedence { why, others: decision.others.into_iter().chain(idle).collect(), winners, ..decision })
}

fn authorization(mesh: &Mesh, placement: &Placement) -> Option<Precedence> {
    let decision = attached(
        mesh,
        placement,
        (Kind::AuthorizationPolicy, &mesh.objects.authorization_policies),
        "authorization of requests to this workload",
        String::from,
    )?;
    let found = &placement.policies.authorization;
    let winners: Vec<ObjectId> = found.policies().map(WorkloadPolicy::id).collect();
    let allows = match (winners.is_empty(), found.allow.is_empty()) {
        (true, _) => "no policy applies: every request is allowed".to_owned(),
        (false, true) => format!("{} apply: CUSTOM before DENY; what none denies is allowed", listed(&winners)),
        (false, false) => format!(
            "{} apply: CUSTOM before DENY before ALLOW; what no ALLOW policy allows is denied",
            listed(&winners)
        ),
    };
    Some(Precedence { why: allows, winners, ..decision })
}

fn telemetry(placement: &Placement) -> Option<Precedence> {
    let winners = &placement.telemetry.made_from;
    (!winners.is_empty()).then(|| Precedence {
        about: "telemetry of this workload".into(),
        why: format!("{} apply: later ones override what earlier ones set", listed(winners)),
        winners: winners.clone(),
        others: Vec::new(),
    })
}

fn gateways(placement: &Placement) -> Option<Precedence> {
    let merged: Vec<ObjectId> = placement
        .gateway()
        .gateways
        .iter()
        .filter_map(|name| name.split_once('/'))
        .map(|(namespace, name)| ObjectId { kind: Kind::Gateway, namespace: namespace.into(), name: name.into() })
        .collect();
    (!merged.is_empty()).then(|| Precedence {
        about: "ports and hosts of this gateway".into(),
        why: format!("{} are served: of servers in conflict that of the oldest Gateway stays", listed(&merged)),
        winners: merged,
        others: Vec::new(),
    })
}

/// The objects of a kind that apply to the workload, and those near it that do not. `None`: there are none near it.
fn attached<S: SelectsWorkloads>(
    mesh: &Mesh,
    placement: &Placement,
    (kind, table): (Kind, &Table<S>),
    about: &str,
    why: impl Fn(String) -> String,
) -> Option<Precedence> {
    let (root, own) = (&*mesh.config.root_namespace, &*placement.proxy.namespace);
    let near = table.values().filter(|it| *it.meta.namespace == *root || *it.meta.namespace == *own);
    let holds = |it: &Object<S>| applies(&it.spec, &it.meta.namespace, own, &placement.labels);
    let (winners, losers): (Vec<_>, Vec<_>) = near.partition(|it| holds(it));
    if winners.is_empty() && losers.is_empty() {
        return None;
    }
    let named = |them: &[&std::sync::Arc<Object<S>>]| them.iter().map(|it| id(kind, &it.meta)).collect::<Vec<_>>();
    let winners = named(&winners);
    Some(Precedence {
        about: about.to_owned(),
        why: if winners.is_empty() { format!("no {} applies", kind.name()) } else { why(listed(&winners)) },
        others: named(&losers).into_iter().map(|it| (it, "it does not select this workload".to_owned())).collect(),
        winners,
    })
}

fn listed(ids: &[ObjectId]) -> String {
    const SHOWN: usize = 4;
    let mut text = ids.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if ids.len() > SHOWN {
        text.push_str(&format!(" and {} more", ids.len() - SHOWN));
    }
    text
}

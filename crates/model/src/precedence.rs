//! Why one object applies to a proxy and another one does not, in words. The winners are those that the placement holds, so that the text is
//! true; the others are looked for among all objects of the kind. For people: translation does not read it.

mod attached;
mod destination_rule;
mod host;
mod mutual_tls;
mod sidecar;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::labels::Labels;
use config::meta::Meta;

use crate::mesh::Mesh;
use crate::placement::Placement;

/// One decision between objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precedence {
    /// What was decided, such as `host cart.shop.svc.cluster.local`.
    pub about: String,
    /// The objects that apply, the most important first. Empty: the default applies.
    pub winners: Vec<ObjectId>,
    /// A sentence: what applies and why.
    pub why: String,
    /// Objects that do not apply, or only where the winners leave room, and why.
    pub others: Vec<(ObjectId, String)>,
}

impl Mesh {
    /// The decisions behind what a proxy has. Visits the objects of each kind once.
    pub fn precedence(&self, placement: &Placement) -> Vec<Precedence> {
        let mut decisions = vec![sidecar::decision(self, placement)];
        decisions.push(mutual_tls::decision(self, placement));
        decisions.extend(host::of_services(self, placement));
        decisions.extend(host::of_virtual_services(self, placement));
        decisions.extend(destination_rule::decisions(self, placement));
        decisions.extend(attached::decisions(self, placement));
        decisions
    }
}

fn id(kind: Kind, meta: &Meta) -> ObjectId {
    ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

/// The age of the loser of two objects whose age decided.
fn younger(winner: &Meta, loser: &Meta) -> String {
    let first = format!("{}/{}", winner.namespace, winner.name);
    match (winner.created, loser.created) {
        (before, after) if before < after => format!("{first} is older"),
        _ => format!("{first} is as old, and its name comes first"),
    }
}

fn shown(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

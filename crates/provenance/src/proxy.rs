//! The explanation of a proxy: what it has by type, the objects that it comes from, and the decisions between objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Mesh, Precedence, Proxy, ProxyKind};
use serde::{Deserialize, Serialize};

/// A resource that a proxy has.
#[derive(Debug, Clone)]
pub struct ProxyResource {
    /// `CDS`, `LDS`, ...
    pub kind: &'static str,
    pub name: Arc<str>,
    pub bytes: usize,
    /// As recorded by translation: objects, and patches as `EnvoyFilter ns/name configPatches[0]`.
    pub made_from: Vec<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyExplanation {
    /// `pod.namespace`.
    pub proxy: String,
    pub namespace: String,
    /// `sidecar` or `router`.
    #[serde(rename = "type")]
    pub proxy_type: String,
    pub types: Vec<TypeSummary>,
    /// The number of resources of each type that an object is in, by object.
    pub objects: BTreeMap<String, BTreeMap<String, usize>>,
    pub decisions: Vec<Decision>,
    /// What it rejects at the moment, by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejects: BTreeMap<String, String>,
    /// Resources whose newest content it is not sent, as `LDS/NAME`, and why not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_back: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeSummary {
    #[serde(rename = "type")]
    pub kind: String,
    pub resources: usize,
    pub bytes: usize,
    /// Made from no object: the same in every mesh with this mesh config.
    pub built_in: usize,
}

/// One decision between objects, see `model::Precedence`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Such as `routes of host cart.shop.svc.cluster.local`.
    pub about: String,
    /// Empty: the default applies.
    pub winners: Vec<String>,
    pub why: String,
    /// Objects that lose, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Loser>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loser {
    pub object: String,
    pub why: String,
}

impl Decision {
    pub(crate) fn involves(&self, objects: &BTreeSet<&str>) -> bool {
        self.winners.iter().any(|winner| objects.contains(winner.as_str()))
    }

    /// As winner or loser.
    pub(crate) fn names(&self, object: &str) -> bool {
        self.winners.iter().any(|winner| winner == object) || self.others.iter().any(|loser| loser.object == object)
    }
}

/// `resources`: everything that the proxy has.
pub fn explain_proxy(mesh: &Mesh, proxy: &Arc<Proxy>, resources: &[ProxyResource]) -> ProxyExplanation {
    let decisions = decisions(mesh, proxy);
    ProxyExplanation { decisions, ..explain_without_mesh(&proxy.id, &proxy.namespace, proxy.kind, resources) }
}

/// What is known without a mesh: no decisions.
pub fn explain_without_mesh(
    proxy: &str,
    namespace: &str,
    kind: ProxyKind,
    resources: &[ProxyResource],
) -> ProxyExplanation {
    let mut types: BTreeMap<&str, TypeSummary> = BTreeMap::new();
    let mut objects: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for resource in resources {
        let summary = types.entry(resource.kind).or_default();
        summary.resources += 1;
        summary.bytes += resource.bytes;
        summary.built_in += usize::from(resource.made_from.is_empty());
        let named: BTreeSet<&str> = resource.made_from.iter().map(|text| object_of(text)).collect();
        for object in named {
            *objects.entry(object.to_owned()).or_default().entry(resource.kind.to_owned()).or_default() += 1;
        }
    }
    let types = types.into_iter().map(|(kind, summary)| TypeSummary { kind: kind.to_owned(), ..summary });
    ProxyExplanation {
        proxy: proxy.to_owned(),
        namespace: namespace.to_owned(),
        proxy_type: match kind {
            ProxyKind::Sidecar => "sidecar".to_owned(),
            ProxyKind::Gateway => "router".to_owned(),
        },
        types: types.collect(),
        objects,
        decisions: Vec::new(),
        rejects: BTreeMap::new(),
        held_back: BTreeMap::new(),
    }
}

pub(crate) fn decisions(mesh: &Mesh, proxy: &Arc<Proxy>) -> Vec<Decision> {
    mesh.precedence(&mesh.place(proxy)).into_iter().map(decision).collect()
}

fn decision(Precedence { about, winners, why, others }: Precedence) -> Decision {
    let others = others.into_iter().map(|(object, why)| Loser { object: object.to_string(), why });
    Decision { about, winners: winners.iter().map(ToString::to_string).collect(), why, others: others.collect() }
}

/// The object in `EnvoyFilter shop/lua configPatches[0]`.
pub fn object_of(text: &str) -> &str {
    text.match_indices(' ').nth(1).map_or(text, |(end, _)| &text[..end])
}

//! The explanation of an object: what became of it, which proxies it reaches, and what of it has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use config::kind::Kind;
use model::{Mesh, Proxy};
use serde::{Deserialize, Serialize};
use xds::TypeUrl;

use crate::experiment::Experiment;
use crate::proxy::{self, Decision};
use crate::search;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectExplanation {
    /// `VirtualService shop/cart`.
    pub object: String,
    /// Where it is written, as `file:line:column`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `false`: no valid version of it is known; the notes may say why.
    pub in_use: bool,
    pub notes: Vec<ObjectNote>,
    pub resources: Vec<ObjectReach>,
    pub proxies: Vec<ReachedProxy>,
    /// Fields without which everything examined is the same, such as `spec.subsets[2]`.
    pub without_effect: Vec<String>,
    /// So many of its resources were examined for that, at most one for each name, namespace and type of proxy.
    pub examined: usize,
    /// Decisions between objects in which it took part.
    pub decisions: Vec<Decision>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectNote {
    /// `error` or `warning`.
    pub severity: String,
    /// Empty: the whole object.
    pub field: String,
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReach {
    /// `CDS`, `LDS`, ...
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub proxies: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReachedProxy {
    pub proxy: String,
    pub namespace: String,
    /// The number of resources with something of the object, by type.
    pub resources: BTreeMap<String, usize>,
    /// Absent: no server was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ReachState>,
    /// When the last response with something of the object was sent, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReachState {
    /// Rejected, and the reason names a resource of the object, or none at all.
    Rejected,
    /// Not sent, or not answered yet.
    Pending,
    Acknowledged,
}

/// A proxy with those of its resources that are made from the object.
#[derive(Debug, Clone)]
pub struct ObjectHolder {
    pub proxy: Arc<Proxy>,
    pub resources: Vec<(TypeUrl, Arc<str>)>,
}

/// Resources in which fields are tried: each costs a trial for each field.
const MOST_EXAMINED: usize = 32;

/// Proxies whose decisions are looked at, one for each namespace, type and labels.
const MOST_DECIDING: usize = 16;

/// Fields that limit where an object applies: where it does, all is the same without them.
const LIMITING: [&str; 6] =
    ["spec.exportTo", "spec.selector", "spec.workloadSelector", "spec.targetRef", "spec.targetRefs", "spec.gateways"];

/// `namespace/name`, or only the name for kinds without a namespace. `None`: no such kind, or the name lacks a part.
pub fn object_id(kind: &str, name: &str) -> Option<ObjectId> {
    let kind = Kind::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(kind))?;
    let (namespace, name) = match kind.is_namespaced() {
        true => name.split_once('/')?,
        false => ("", name),
    };
    (!name.is_empty()).then(|| ObjectId { kind, namespace: namespace.into(), name: name.into() })
}

/// `holders`: the proxies that it reaches; `proxies`: all.
pub fn explain_object(
    mesh: &Mesh,
    id: &ObjectId,
    diagnostics: &[Diagnostic],
    holders: &[ObjectHolder],
    proxies: &[Arc<Proxy>],
) -> ObjectExplanation {
    let object = mesh.snapshot().object(id);
    let (without_effect, examined) = without_effect(mesh, id, holders);
    let mut notes: Vec<ObjectNote> = notes(mesh, id, diagnostics).collect();
    notes.sort();
    notes.dedup();
    ObjectExplanation {
        object: id.to_string(),
        at: object.as_ref().and_then(|object| object.meta().at.as_ref()).map(ToString::to_string),
        in_use: object.is_some(),
        notes,
        resources: reach(holders),
        proxies: holders.iter().map(reached).collect(),
        without_effect,
        examined,
        decisions: decisions(mesh, id, holders.iter().map(|it| &it.proxy).chain(proxies)),
    }
}

fn notes<'a>(mesh: &Mesh, id: &'a ObjectId, diagnostics: &'a [Diagnostic]) -> impl Iterator<Item = ObjectNote> {
    let computed = mesh.diagnostics().into_iter().chain(mesh.policy_diagnostics()).chain(mesh.analysis());
    let all = diagnostics.iter().cloned().chain(mesh.snapshot().diagnostics.iter().cloned()).chain(computed);
    let about = all.filter(|it| it.object.as_ref() == Some(id)).collect::<Vec<_>>().into_iter();
    about.map(|it| ObjectNote { severity: it.severity.to_string(), field: it.field, what: it.what })
}

fn reach(holders: &[ObjectHolder]) -> Vec<ObjectReach> {
    let mut counts: BTreeMap<(TypeUrl, &str), usize> = BTreeMap::new();
    for (kind, name) in holders.iter().flat_map(|holder| &holder.resources) {
        *counts.entry((*kind, name)).or_default() += 1;
    }
    let reached = counts.into_iter().map(|((kind, name), proxies)| ObjectReach {
        kind: kind.short().to_owned(),
        name: name.to_owned(),
        proxies,
    });
    reached.collect()
}

fn reached(holder: &ObjectHolder) -> ReachedProxy {
    let mut resources: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, _) in &holder.resources {
        *resources.entry(kind.short().to_owned()).or_default() += 1;
    }
    ReachedProxy {
        proxy: holder.proxy.id.to_string(),
        namespace: holder.proxy.namespace.to_string(),
        resources,
        state: None,
        since: None,
        reason: None,
    }
}

/// The outermost fields without effect, and in how many resources they were tried.
fn without_effect(mesh: &Mesh, id: &ObjectId, holders: &[ObjectHolder]) -> (Vec<String>, usize) {
    let Some(object) = mesh.snapshot().object(id) else { return (Vec::new(), 0) };
    let mut examined = BTreeSet::new();
    let mut causes = BTreeSet::new();
    for ObjectHolder { proxy, resources } in holders {
        for (kind, name) in resources {
            let alike = (*kind, name, &proxy.namespace, proxy.kind);
            if examined.len() >= MOST_EXAMINED || !examined.insert(alike) {
                continue;
            }
            let Some(experiment) = Experiment::new(mesh, proxy, *kind, name) else { continue };
            causes.extend(search::fields(&experiment, &object).into_iter().map(|cause| cause.field));
        }
    }
    let idle = if examined.is_empty() { Vec::new() } else { search::idle_fields(&object, &causes) };
    (idle.into_iter().filter(|field| !LIMITING.contains(&field.as_str())).collect(), examined.len())
}

/// Of proxies that differ in what decides.
fn decisions<'a>(mesh: &Mesh, id: &ObjectId, proxies: impl Iterator<Item = &'a Arc<Proxy>>) -> Vec<Decision> {
    let named = id.to_string();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::<Decision>::new());
    for proxy in proxies {
        let labels = mesh.place(proxy).labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        if seen.len() >= MOST_DECIDING || !seen.insert((proxy.namespace.clone(), proxy.kind, labels)) {
            continue;
        }
        for decision in proxy::decisions(mesh, proxy).into_iter().filter(|it| it.names(&named)) {
            let own =
                Decision { others: decision.others.into_iter().filter(|it| it.object == named).collect(), ..decision };
            if !found.contains(&own) {
                found.push(own);
            }
        }
    }
    found
}

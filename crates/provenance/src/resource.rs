//! The explanation of one resource: its causes, and for each part which of them it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::{Location, ObjectId};
use config::kind::Kind;
use config::store::Snapshot;
use model::{Mesh, Proxy};
use serde::{Deserialize, Serialize};
use xds::TypeUrl;

use crate::experiment::{Effect, Experiment};
use crate::proxy::Decision;
use crate::search::{self, FieldCause};
use crate::{mesh_setting, proxy};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceExplanation {
    /// `pod.namespace`.
    pub proxy: String,
    /// `CDS`, `LDS`, ...
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    /// Of the message.
    pub bytes: usize,
    /// Objects, and `mesh config`. Empty: it is built in.
    pub causes: Vec<Cause>,
    /// In the order of the resource.
    pub parts: Vec<PartOrigin>,
    /// Decisions between objects in which a cause took part.
    pub decisions: Vec<Decision>,
    /// The search was ended: causes may be missing.
    pub incomplete: bool,
    /// Why the proxy is not sent this content. Absent: it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// `VirtualService shop/cart`, or `mesh config`.
    pub object: String,
    /// Where it is written, as `file:line:column`. Absent: not from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    pub role: Role,
    /// Of kinds whose fields are explained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<CausingField>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Without it the resource does not exist.
    Makes,
    /// Without it the resource is different.
    Shapes,
    /// It was read, and the resource is the same without it.
    Read,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CausingField {
    /// `spec.http[0].timeout`.
    pub field: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The parts that are not the same without it. Empty: the resource does not exist without it, or has more.
    pub parts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartOrigin {
    /// `virtualHosts[cart:80].routes[0]`.
    pub part: String,
    /// Objects, with the field where that is known. `default`: nobody set it; it is the same as long as the resource exists.
    pub from: Vec<String>,
}

/// What a part without a cause comes from.
pub(crate) const DEFAULT: &str = "default";

const MESH_CONFIG: &str = "mesh config";

/// Where a field of an object that begins there is written; `None`: unknown.
pub type FieldLocator<'a> = &'a dyn Fn(&Location, &str) -> Option<Location>;

/// `cds`, `CDS`, ...; `None`: not a type that is explained.
pub fn resource_type(text: &str) -> Option<TypeUrl> {
    const EXPLAINED: [TypeUrl; 6] = [
        TypeUrl::Cluster,
        TypeUrl::Endpoints,
        TypeUrl::Listener,
        TypeUrl::Route,
        TypeUrl::Extension,
        TypeUrl::NameTable,
    ];
    EXPLAINED.into_iter().find(|kind| kind.short().eq_ignore_ascii_case(text))
}

/// `None`: the proxy has no such resource. It takes from milliseconds to a few seconds.
pub fn explain_resource(
    mesh: &Mesh,
    proxy: &Arc<Proxy>,
    kind: TypeUrl,
    name: &str,
    locate: FieldLocator<'_>,
) -> Option<ResourceExplanation> {
    let experiment = Experiment::new(mesh, proxy, kind, name)?;
    let mut origins: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    let mut causes: Vec<Cause> = candidates(&experiment, mesh, proxy)
        .iter()
        .filter_map(|id| cause(&experiment, mesh.snapshot(), id, locate, &mut origins))
        .collect();
    causes.extend(mesh_config_cause(&experiment, mesh, &mut origins));
    causes.sort_by(|a, b| (a.role, &a.object).cmp(&(b.role, &b.object)));
    let named: BTreeSet<&str> = causes.iter().map(|cause| &*cause.object).collect();
    let decisions = proxy::decisions(mesh, proxy).into_iter().filter(|it| it.involves(&named)).collect();
    let parts = experiment.parts.iter().enumerate().map(|(index, part)| PartOrigin {
        part: part.label.clone(),
        from: origins.remove(&index).map_or_else(|| vec![DEFAULT.to_owned()], |from| from.into_iter().collect()),
    });
    Some(ResourceExplanation {
        proxy: proxy.id.to_string(),
        kind: kind.short().to_owned(),
        name: name.to_owned(),
        bytes: experiment.resource.any.value.len(),
        parts: parts.collect(),
        incomplete: experiment.is_exhausted(),
        held_back: None,
        causes,
        decisions,
    })
}

/// The objects that translation says it read, and those of the namespaces around that matter nevertheless.
fn candidates(experiment: &Experiment<'_>, mesh: &Mesh, proxy: &Proxy) -> BTreeSet<ObjectId> {
    let resource = &experiment.resource;
    let mut found = resource.made_from.clone();
    found.extend(resource.patched.iter().map(|patch| patch.object.clone()));
    let mut namespaces: BTreeSet<Arc<str>> = found.iter().map(|id| id.namespace.clone()).collect();
    namespaces.extend([proxy.namespace.clone(), Arc::from(mesh.config.root_namespace.as_str())]);
    let all = mesh.snapshot().metas().into_iter();
    let near = all.filter(|(kind, meta)| may_matter(*kind) && namespaces.contains(&meta.namespace));
    let near = near.map(|(kind, meta)| ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() });
    let mut others: Vec<ObjectId> = near.filter(|id| !found.contains(id)).collect();
    if let Some(pod) = proxy.pod() {
        others.push(ObjectId { kind: Kind::Pod, namespace: pod.namespace, name: pod.name });
    }
    found.extend(search::among(experiment, &others).into_iter().cloned());
    found
}

/// EndpointSlices stand for the Pods of endpoints; secrets and certificates are not searched.
fn may_matter(kind: Kind) -> bool {
    kind.is_istio() || matches!(kind, Kind::Service | Kind::EndpointSlice | Kind::Endpoints | Kind::Ingress)
}

/// `None`: the object is gone, and only its name is still known.
fn cause(
    experiment: &Experiment<'_>,
    snapshot: &Snapshot,
    id: &ObjectId,
    locate: FieldLocator<'_>,
    origins: &mut BTreeMap<usize, BTreeSet<String>>,
) -> Option<Cause> {
    let object = snapshot.object(id)?;
    let effect = experiment.without_objects([id]);
    let fields = if effect == Effect::Same { Vec::new() } else { search::fields(experiment, &object) };
    let name = id.to_string();
    if fields.is_empty()
        && let Effect::Changes(parts) = &effect
    {
        origins_of(origins, parts, &name);
    }
    let at = object.meta().at.as_ref();
    let causing = causing_fields(experiment, &name, fields, origins);
    let placed = causing
        .into_iter()
        .map(|field| CausingField { at: at.and_then(|at| locate(at, &field.field)).map(|at| at.to_string()), ..field });
    Some(Cause { object: name, at: at.map(ToString::to_string), role: role(&effect), fields: placed.collect() })
}

fn mesh_config_cause(
    experiment: &Experiment<'_>,
    mesh: &Mesh,
    origins: &mut BTreeMap<usize, BTreeSet<String>>,
) -> Option<Cause> {
    let fields = mesh_setting::causes(experiment, &mesh.config);
    let role = fields.iter().map(|field| role(&field.effect)).min()?;
    let fields = causing_fields(experiment, MESH_CONFIG, fields, origins);
    Some(Cause { object: MESH_CONFIG.to_owned(), at: None, role, fields })
}

/// Enters each field at the parts that change without it.
fn causing_fields(
    experiment: &Experiment<'_>,
    object: &str,
    fields: Vec<FieldCause>,
    origins: &mut BTreeMap<usize, BTreeSet<String>>,
) -> Vec<CausingField> {
    let causing = fields.into_iter().map(|FieldCause { field, effect }| {
        let parts = if let Effect::Changes(parts) = effect { parts } else { Vec::new() };
        origins_of(origins, &parts, &format!("{object} {field}"));
        let parts = parts.into_iter().map(|part| experiment.parts[part].label.clone()).collect();
        CausingField { field, at: None, parts }
    });
    causing.collect()
}

fn origins_of(origins: &mut BTreeMap<usize, BTreeSet<String>>, parts: &[usize], from: &str) {
    for part in parts {
        origins.entry(*part).or_default().insert(from.to_owned());
    }
}

fn role(effect: &Effect) -> Role {
    match effect {
        Effect::Gone => Role::Makes,
        Effect::Changes(_) => Role::Shapes,
        Effect::Same => Role::Read,
    }
}

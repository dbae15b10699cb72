//! Renders everything that one proxy receives, from scratch: for `meltemi render`, and as the oracle for refreshed views.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use model::{Mesh, PatchId, Placement};
use translate::{ClusterName, Translated};
use wire::any;
use wire::google::protobuf::Any;
use xds::TypeUrl;

use crate::layer_kinds;

#[derive(Debug, Clone, PartialEq)]
pub struct RenderedResource {
    pub kind: TypeUrl,
    pub name: Arc<str>,
    pub any: Any,
    pub made_from: BTreeSet<ObjectId>,
    /// Patches that changed or added the resource.
    pub patched: BTreeSet<PatchId>,
}

impl RenderedResource {
    pub(crate) fn new<M: wire::any::Packable>(kind: TypeUrl, name: &str, made: Translated<M>) -> Self {
        let Translated { value, made_from, patched } = made;
        Self::from_any(kind, name, Translated { value: any::pack(&value), made_from, patched })
    }

    fn from_any(kind: TypeUrl, name: &str, made: Translated<Any>) -> Self {
        let Translated { value, made_from, patched } = made;
        Self { kind, name: Arc::from(name), any: value, made_from, patched }
    }
}

/// Sorted by type in push order, then by name.
pub fn render(mesh: &Mesh, placement: &Placement) -> Vec<RenderedResource> {
    let mut out = layer_kinds::render_outbound(mesh, placement);
    out.extend(layer_kinds::render_inbound(mesh, placement));
    out.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    out
}

/// One resource as in `render`, without the others where that is cheaper. `None`: the proxy does not have it.
pub fn render_resource(mesh: &Mesh, placement: &Placement, kind: TypeUrl, name: &str) -> Option<RenderedResource> {
    let mut candidates = match kind {
        TypeUrl::Cluster | TypeUrl::Endpoints => layer_kinds::render_cluster_candidates(mesh, placement, name),
        TypeUrl::Route => layer_kinds::render_listed_route(mesh, placement, name).into_iter().collect(),
        TypeUrl::Listener => layer_kinds::render_listeners(mesh, placement),
        TypeUrl::Extension => layer_kinds::render_extensions(placement).collect(),
        TypeUrl::NameTable => layer_kinds::name_table(mesh, placement).into_iter().collect(),
        _ => Vec::new(),
    };
    candidates.retain(|made| made.kind == kind && *made.name == *name);
    candidates.pop()
}

/// Also for an unknown name: a proxy that requests it waits for an answer.
pub(crate) fn render_endpoints(mesh: &Mesh, placement: &Placement, name: &str) -> RenderedResource {
    let found = name.parse::<ClusterName>().ok().and_then(|cluster| translate::assignment(mesh, placement, &cluster));
    let made = found.unwrap_or_else(|| Translated::built_in(translate::empty_assignment(name)));
    RenderedResource::from_any(TypeUrl::Endpoints, name, made)
}

pub(crate) fn render_route(mesh: &Mesh, placement: &Placement, name: &str) -> RenderedResource {
    match translate::route(mesh, placement, name) {
        Some(made) => RenderedResource::new(TypeUrl::Route, name, made),
        None => render_empty_route(name),
    }
}

pub(crate) fn render_empty_route(name: &str) -> RenderedResource {
    RenderedResource::new(TypeUrl::Route, name, Translated::built_in(translate::empty_route(name)))
}

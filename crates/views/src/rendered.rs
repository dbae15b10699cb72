//! A made resource, and everything that one proxy gets, from scratch: for `render`, and as the oracle that refreshed views must equal.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::note::ObjectId;
use model::{Mesh, PatchId, Placement};
use translate::{ClusterName, Made};
use wire::any;
use wire::google::protobuf::Any;
use xds::TypeUrl;

use crate::parts;

#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    pub kind: TypeUrl,
    pub name: Arc<str>,
    pub any: Any,
    pub made_from: BTreeSet<ObjectId>,
    /// What changed it afterwards, or added it.
    pub patched: BTreeSet<PatchId>,
}

impl Rendered {
    pub(crate) fn new<M: wire::any::Packed>(kind: TypeUrl, name: &str, made: Made<M>) -> Self {
        let Made { value, made_from, patched } = made;
        Self::packed(kind, name, Made { value: any::pack(&value), made_from, patched })
    }

    fn packed(kind: TypeUrl, name: &str, made: Made<Any>) -> Self {
        let Made { value, made_from, patched } = made;
        Self { kind, name: Arc::from(name), any: value, made_from, patched }
    }
}

/// By type in push order, then by name.
pub fn render(mesh: &Mesh, placement: &Placement) -> Vec<Rendered> {
    let mut out = parts::outbound(mesh, placement);
    out.extend(parts::inbound(mesh, placement));
    out.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    out
}

/// Also for a name that nobody listed: a proxy that waits for it must get an answer.
pub(crate) fn endpoint(mesh: &Mesh, placement: &Placement, name: &str) -> Rendered {
    let found = name.parse::<ClusterName>().ok().and_then(|cluster| translate::assignment(mesh, placement, &cluster));
    let made = found.unwrap_or_else(|| Made::built_in(translate::empty_assignment(name)));
    Rendered::packed(TypeUrl::Endpoints, name, made)
}

pub(crate) fn route(mesh: &Mesh, placement: &Placement, name: &str) -> Rendered {
    let made = translate::route(mesh, placement, name).unwrap_or_else(|| Made::built_in(translate::empty_route(name)));
    Rendered::new(TypeUrl::Route, name, made)
}

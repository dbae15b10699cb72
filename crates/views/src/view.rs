//! What one class of proxies holds, of every type, at one sequence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use model::{Class, Mesh, Placement};
use xds::{Resource, Seq, TypeUrl};

use crate::rendered::{self, Rendered};
use crate::table::Table;
use crate::version::version;

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) class: Class,
    mesh: Arc<Mesh>,
    /// One member stands for all: the class key holds everything that answers depend on.
    placement: Placement,
    tables: BTreeMap<TypeUrl, Arc<Table>>,
}

/// The types that a view lists. The rest have no resources yet.
const LISTED: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route];

impl View {
    /// `before`: the view of this class until now, if it had one.
    pub(crate) fn new(
        class: Class,
        mesh: &Arc<Mesh>,
        placement: Placement,
        before: Option<&Self>,
        seq: Seq,
        began: Option<Instant>,
    ) -> Self {
        let mut by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>> = BTreeMap::new();
        for made in rendered::render(mesh, &placement) {
            by_kind.entry(made.kind).or_default().push(Arc::new(resource(made)));
        }
        let empty = Arc::new(Table::default());
        let tables = LISTED.into_iter().map(|kind| {
            let old = before.and_then(|view| view.tables.get(&kind)).unwrap_or(&empty);
            let resources = by_kind.remove(&kind).unwrap_or_default();
            (kind, Arc::new(old.next(seq, began, resources)))
        });
        Self { tables: tables.collect(), class, mesh: mesh.clone(), placement }
    }

    pub(crate) fn table(&self, kind: TypeUrl) -> Option<&Arc<Table>> {
        self.tables.get(&kind)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.tables.iter().map(|(kind, table)| (*kind, table))
    }

    pub(crate) fn changed_at(&self, seq: Seq) -> bool {
        self.tables.values().any(|table| table.changed_at(seq))
    }

    pub(crate) fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if let Some(held) = self.table(kind).and_then(|table| table.get(name)) {
            return Some(held.clone());
        }
        let made = match kind {
            TypeUrl::Endpoints => rendered::endpoint(&self.mesh, &self.placement, name),
            TypeUrl::Route => rendered::route(&self.mesh, &self.placement, name),
            _ => return None,
        };
        Some(Arc::new(resource(made)))
    }
}

fn resource(made: Rendered) -> Resource {
    let version = version(&made.any);
    let made_from = made.made_from.iter().map(|object| Arc::from(object.to_string())).collect();
    Resource::new(made.name, version, made.any, made_from)
}

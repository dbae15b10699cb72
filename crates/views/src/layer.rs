//! One part of what proxies hold, shared by all whose key for it is equal: tables of resources, and what refreshes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use model::{Delta, Mesh, Placement};
use xds::{Resource, Seq, TypeUrl};

use crate::rendered::Rendered;
use crate::table::Table;
use crate::version::version;

#[derive(Debug, Default)]
pub(crate) struct Layer {
    tables: BTreeMap<TypeUrl, Arc<Table>>,
}

/// When a refresh happens and what caused it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) seq: Seq,
    pub(crate) began: Option<Instant>,
}

/// What a refresh of a layer made.
pub(crate) enum Remade {
    /// Nothing that it reads changed.
    Nothing,
    /// These resources; the names that were asked about and are not among them are gone.
    Some { made: Vec<Rendered>, asked: BTreeSet<(TypeUrl, Arc<str>)> },
    /// All resources of these types.
    All { made: Vec<Rendered>, types: &'static [TypeUrl] },
}

/// Which part of a proxy's answers a layer is.
pub(crate) trait Part {
    /// Everything, from scratch.
    fn make(mesh: &Mesh, placement: &Placement) -> Vec<Rendered>;
    /// What the change touches. `old`: the mesh until now and the same proxy's place in it.
    fn remake(mesh: &Mesh, placement: &Placement, delta: &Delta, old: &Placement) -> Vec<Remade>;
    const TYPES: &'static [TypeUrl];
}

impl Layer {
    pub(crate) fn new<P: Part>(mesh: &Mesh, placement: &Placement, moment: Moment) -> Self {
        let made = P::make(mesh, placement);
        Self::default().with(Remade::All { made, types: P::TYPES }, moment).unwrap_or_default()
    }

    /// `None`: nothing changed.
    pub(crate) fn next<P: Part>(
        &self,
        mesh: &Mesh,
        placement: &Placement,
        delta: &Delta,
        old: &Placement,
        moment: Moment,
    ) -> Option<Self> {
        let mut next: Option<Self> = None;
        for remade in P::remake(mesh, placement, delta, old) {
            let base = next.as_ref().unwrap_or(self);
            if let Some(changed) = base.with(remade, moment) {
                next = Some(changed);
            }
        }
        next
    }

    pub(crate) fn table(&self, kind: TypeUrl) -> Option<&Arc<Table>> {
        self.tables.get(&kind)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.tables.iter().map(|(kind, table)| (*kind, table))
    }

    fn with(&self, remade: Remade, moment: Moment) -> Option<Self> {
        let (made, mut asked, types) = match remade {
            Remade::Nothing => return None,
            Remade::Some { made, asked } => (made, asked, [].as_slice()),
            Remade::All { made, types } => (made, BTreeSet::new(), types),
        };
        let mut by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>> = types.iter().map(|&kind| (kind, Vec::new())).collect();
        for resource in made {
            asked.remove(&(resource.kind, resource.name.clone()));
            by_kind.entry(resource.kind).or_default().push(Arc::new(encoded(resource)));
        }
        let mut gone: BTreeMap<TypeUrl, Vec<Arc<str>>> = BTreeMap::new();
        for (kind, name) in asked {
            gone.entry(kind).or_default().push(name);
            by_kind.entry(kind).or_default();
        }
        self.with_tables(by_kind, &gone, types, moment)
    }

    fn with_tables(
        &self,
        by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>>,
        gone: &BTreeMap<TypeUrl, Vec<Arc<str>>>,
        whole: &[TypeUrl],
        Moment { seq, began }: Moment,
    ) -> Option<Self> {
        let empty = Arc::new(Table::default());
        let mut tables = self.tables.clone();
        let mut changed = false;
        for (kind, made) in by_kind {
            let old = tables.get(&kind).unwrap_or(&empty);
            let next = if whole.contains(&kind) {
                old.replaced(seq, began, made)
            } else {
                old.updated(seq, began, made, gone.get(&kind).into_iter().flatten().cloned())
            };
            if let Some(next) = next {
                tables.insert(kind, Arc::new(next));
                changed = true;
            }
        }
        changed.then_some(Self { tables })
    }
}

/// The bytes that every stream shares.
pub(crate) fn encoded(made: Rendered) -> Resource {
    let version = version(&made.any);
    let made_from = made.made_from.iter().map(|object| Arc::from(object.to_string())).collect();
    Resource::new(made.name, version, made.any, made_from)
}

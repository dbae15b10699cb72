//! One part of what proxies hold, shared by all whose key for it is equal: tables of resources, and what refreshes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use config::note::ObjectId;
use config::shared::shared_text;
use model::{Delta, InboundKey, Mesh, PatchId, Placement};
use prost::Name;
use translate::{Cast, HttpListeners, Made, Spans};
use wire::envoy::config::listener::v3::Listener;
use xds::{Kinds, Resource, Seq, TypeUrl};

use crate::moulds::Moulds;
use crate::rendered::Rendered;
use crate::stock::Stock;
use crate::table::Table;
use crate::text;
use crate::version::{version, version_of};

#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// By type, each once.
    tables: Box<[(TypeUrl, Arc<Table>)]>,
    /// What its HTTP listeners are made from, or those of the layers that stand on it.
    pub(crate) http: Arc<HttpListeners>,
}

/// An encoded resource of some type.
#[derive(Clone)]
pub(crate) struct Ware {
    pub(crate) kind: TypeUrl,
    pub(crate) resource: Arc<Resource>,
}

impl Ware {
    pub(crate) fn new(made: Rendered) -> Self {
        Self { kind: made.kind, resource: Arc::new(encoded(made)) }
    }

    /// A listener that came from a mould.
    pub(crate) fn cast(name: &str, made: &Made<Cast>) -> Self {
        let Cast { model, own, steps } = &made.value;
        let type_url = Listener::type_url();
        let version = version_of(&type_url, made.value.pieces());
        let cast = xds::Cast { type_url: &type_url, model: model.clone(), own, steps };
        let resource = Resource::cast(shared_text(name), version, &cast, said(&made.made_from, &made.patched));
        Self { kind: TypeUrl::Listener, resource: Arc::new(resource) }
    }

    /// What is held, where it is the same: to compare it with others of its kind costs more than to make it.
    pub(crate) fn kept(made: Rendered, held: &Layer) -> Self {
        let same = |old: &&Arc<Resource>| {
            old.version == version(&made.any) && old.made_from == said(&made.made_from, &made.patched)
        };
        let old = held.table(made.kind).and_then(|table| table.get(&made.name)).filter(same).cloned();
        match old {
            Some(resource) => Self { kind: made.kind, resource },
            None => Self::new(made),
        }
    }
}

/// What the layers of one class are made with.
pub(crate) struct Making<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) stock: &'a mut Stock,
    /// The kind of client, as the stock knows it.
    pub(crate) client: usize,
    /// Said by the outbound part, read by the part that stands on it.
    pub(crate) http: Arc<HttpListeners>,
    /// For those who come; a change makes each layer for itself.
    pub(crate) moulds: Option<(&'a mut Moulds, &'a InboundKey)>,
    /// Said by the listeners towards others, read by those of what arrives.
    pub(crate) spans: Option<Spans>,
}

/// When a refresh happens and what caused it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) seq: Seq,
    pub(crate) began: Option<Instant>,
    /// Counts refreshes, also those that nobody heard of.
    pub(crate) round: u64,
}

/// What a refresh is about.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// The mesh until now; it is the new one if there was none.
    pub(crate) before: &'a Mesh,
    pub(crate) mesh: &'a Arc<Mesh>,
    pub(crate) delta: &'a Delta,
    pub(crate) moment: Moment,
}

/// What a refresh of a layer made.
pub(crate) enum Remade {
    /// These resources; the names that were asked about and are not among them are gone.
    Some { made: Vec<Ware>, asked: BTreeSet<(TypeUrl, Arc<str>)> },
    /// All resources of these types.
    All { made: Vec<Ware>, types: &'static [TypeUrl] },
}

/// What changed for a proxy that stands for all of its layer.
pub(crate) struct Changed<'a> {
    pub(crate) delta: &'a Delta,
    /// The same proxy's place in the mesh until now, and in the new one.
    pub(crate) before: &'a Placement,
    pub(crate) now: &'a Placement,
}

/// Which part of a proxy's answers a layer is.
pub(crate) trait Part {
    /// Everything, from scratch.
    fn make(making: &mut Making<'_>, placement: &Placement) -> Vec<Ware>;
    /// What the change touches.
    fn remake(making: &mut Making<'_>, changed: &Changed<'_>, held: &Layer) -> Vec<Remade>;
    const TYPES: &'static [TypeUrl];
}

impl Layer {
    pub(crate) fn new<P: Part>(making: &mut Making<'_>, placement: &Placement, moment: Moment) -> Self {
        let made = P::make(making, placement);
        let tables = Self::default().with(Remade::All { made, types: P::TYPES }, moment).unwrap_or_default().tables;
        Self { tables, http: making.http.clone() }
    }

    /// `None`: nothing changed.
    pub(crate) fn next<P: Part>(&self, making: &mut Making<'_>, changed: &Changed<'_>, moment: Moment) -> Option<Self> {
        let mut next: Option<Self> = None;
        for remade in P::remake(making, changed, self) {
            let base = next.as_ref().unwrap_or(self);
            if let Some(changed) = base.with(remade, moment) {
                next = Some(changed);
            }
        }
        if Arc::ptr_eq(&self.http, &making.http) {
            return next;
        }
        let tables = next.map_or_else(|| self.tables.clone(), |next| next.tables);
        Some(Self { tables, http: making.http.clone() })
    }

    pub(crate) fn table(&self, kind: TypeUrl) -> Option<&Arc<Table>> {
        self.tables.iter().find(|(held, _)| *held == kind).map(|(_, table)| table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.tables.iter().map(|(kind, table)| (*kind, table))
    }

    /// The types that changed at this sequence and not later.
    pub(crate) fn changed_at(&self, seq: Seq) -> Kinds {
        self.tables().filter(|(_, table)| table.seq == seq).map(|(kind, _)| kind).collect()
    }

    fn with(&self, remade: Remade, moment: Moment) -> Option<Self> {
        let (made, mut asked, types) = match remade {
            Remade::Some { made, asked } => (made, asked, [].as_slice()),
            Remade::All { made, types } => (made, BTreeSet::new(), types),
        };
        let mut by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>> = types.iter().map(|&kind| (kind, Vec::new())).collect();
        for Ware { kind, resource } in made {
            asked.remove(&(kind, resource.name.clone()));
            by_kind.entry(kind).or_default().push(resource);
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
        Moment { seq, began, .. }: Moment,
    ) -> Option<Self> {
        let empty = Table::default();
        let mut tables: BTreeMap<_, _> = self.tables.iter().cloned().collect();
        let mut changed = false;
        for (kind, made) in by_kind {
            let old = tables.get(&kind).map_or(&empty, |table| &**table);
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
        changed.then(|| Self { tables: tables.into_iter().collect(), http: self.http.clone() })
    }
}

/// The objects that it was made from, and what changed it afterwards.
fn said(made_from: &BTreeSet<ObjectId>, patched: &BTreeSet<PatchId>) -> Vec<Arc<str>> {
    let mut objects = text::spoken(made_from);
    objects.extend(text::spoken(patched));
    objects
}

/// The bytes that every stream shares.
pub(crate) fn encoded(made: Rendered) -> Resource {
    let Rendered { kind, name, any, made_from, patched } = made;
    let resource = Resource::new(shared_text(&name), version(&any), &any, said(&made_from, &patched));
    match kind {
        // Listeners name their workload, so that there are as many as proxies; those of one kind of service differ in names.
        TypeUrl::Listener | TypeUrl::Cluster | TypeUrl::Endpoints => resource.likened(kind),
        _ => resource,
    }
}

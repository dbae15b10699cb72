//! What a change of objects would change for the connected proxies, computed beside the engine in force: nothing is published and nobody is
//! notified. Secrets are left out, and so are resources that a proxy requests by a name of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

use model::{Mesh, Proxy};
use xds::{Resource, TypeUrl};

use crate::engine::{ClassEntry, Engine, Step};
use crate::layer::Layer;
use crate::layer_caches::LayerIds;
use crate::member::Member;
use crate::table::Table;

pub struct Plan {
    /// All that are connected.
    pub proxies: Vec<Arc<Proxy>>,
    /// Proxies with the same changes, in no particular order.
    pub groups: Vec<PlannedGroup>,
    /// The mesh in force.
    pub before: Arc<Mesh>,
    pub after: Arc<Mesh>,
    /// Of each proxy that changes, its layers before and after. Proxies of a class share them.
    layers: Vec<(Arc<Proxy>, Arc<PlannedLayers>)>,
}

/// Of a class, before and after.
type PlannedLayers = [[Arc<Layer>; 3]; 2];

/// Proxies with the same changes.
pub struct PlannedGroup {
    pub proxies: Vec<Arc<Proxy>>,
    /// Parts have no resource in common. Groups with an equal part share it.
    pub parts: Vec<Arc<[PlannedChange]>>,
}

impl PlannedGroup {
    pub fn changes(&self) -> impl Iterator<Item = &PlannedChange> {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

/// A resource that would be added, replaced or removed.
#[derive(Debug, Clone)]
pub struct PlannedChange {
    pub kind: TypeUrl,
    pub name: Arc<str>,
    /// `None`: it is added.
    pub before: Option<Arc<Resource>>,
    /// `None`: it is removed.
    pub after: Option<Arc<Resource>>,
}

/// The changes of layers, each part once.
#[derive(Default)]
struct Parts {
    /// By the addresses of a layer and of what becomes of it. Few pairs are distinct: proxies share layers.
    of_layers: HashMap<[*const Layer; 2], Arc<[PlannedChange]>>,
    /// By content: layers of different namespaces often change in the same way.
    distinct: HashMap<Vec<ChangeKey>, Arc<[PlannedChange]>>,
}

/// What changes for a class. No parts: nothing.
struct ClassChange {
    parts: Vec<Arc<[PlannedChange]>>,
    layers: Arc<PlannedLayers>,
}

/// Type, name, and the versions before and after.
type ChangeKey = (TypeUrl, Arc<str>, [Option<Arc<str>>; 2]);

impl Plan {
    /// `mesh`: in force. `step`: from this engine.
    pub(crate) fn new(engine: &Engine, mesh: Arc<Mesh>, step: Step) -> Plan {
        let after = step.mesh();
        let next = step.finish().0;
        let previous: HashMap<*const Member, LayerIds> =
            members(engine).map(|(ids, member)| (Arc::as_ptr(&member), ids)).collect();
        let mut parts = Parts::default();
        let mut groups: BTreeMap<Vec<*const [PlannedChange]>, PlannedGroup> = BTreeMap::new();
        let mut of_classes: HashMap<[LayerIds; 2], ClassChange> = HashMap::new();
        let mut layers = Vec::new();
        for (ids, member) in members(&next) {
            let Some(from) = previous.get(&Arc::as_ptr(&member)) else { continue };
            let of_class = of_classes
                .entry([*from, ids])
                .or_insert_with(|| parts.of_class([engine.caches.layers(*from), next.caches.layers(ids)]));
            if of_class.parts.is_empty() {
                continue;
            }
            layers.push((member.proxy.clone(), of_class.layers.clone()));
            let key = of_class.parts.iter().map(Arc::as_ptr).collect();
            let new_group = || PlannedGroup { proxies: Vec::new(), parts: of_class.parts.clone() };
            groups.entry(key).or_insert_with(new_group).proxies.push(member.proxy.clone());
        }
        let proxies = members(engine).map(|(_, member)| member.proxy.clone()).collect();
        Plan { proxies, groups: groups.into_values().collect(), before: mesh, after, layers }
    }

    /// All resources of a proxy that changes, also those that stay, in the order of types and names.
    pub fn configuration(&self, proxy: &str) -> Option<Vec<PlannedChange>> {
        let (_, layers) = self.layers.iter().find(|(it, _)| &*it.id == proxy)?;
        let [before, after] = layers.each_ref().map(resources);
        let names: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
        let both = |key: (TypeUrl, Arc<str>)| PlannedChange {
            before: before.get(&key).cloned(),
            after: after.get(&key).cloned(),
            kind: key.0,
            name: key.1,
        };
        Some(names.into_iter().map(both).collect())
    }
}

fn resources(layers: &[Arc<Layer>; 3]) -> BTreeMap<(TypeUrl, Arc<str>), Arc<Resource>> {
    let tables = layers.iter().flat_map(|layer| layer.tables());
    tables.flat_map(|(kind, table)| table.resources().map(move |it| ((kind, it.name.clone()), it.clone()))).collect()
}

impl Parts {
    fn of_class(&mut self, layers: PlannedLayers) -> ClassChange {
        let [before, after] = &layers;
        let parts: Vec<_> = before.iter().zip(after).map(|(before, after)| self.of_layer(before, after)).collect();
        let parts = match joined_moves(&parts) {
            Some(joined) => vec![self.distinct(joined)],
            None => parts,
        };
        ClassChange { parts: parts.into_iter().filter(|part| !part.is_empty()).collect(), layers: layers.into() }
    }

    fn of_layer(&mut self, before: &Arc<Layer>, after: &Arc<Layer>) -> Arc<[PlannedChange]> {
        // Both layers live in their engines for as long as the plan is made, so that an address names one layer.
        let pair = [Arc::as_ptr(before), Arc::as_ptr(after)];
        if let Some(known) = self.of_layers.get(&pair) {
            return known.clone();
        }
        let changes = self.distinct(layer_changes(before, after));
        self.of_layers.insert(pair, changes.clone());
        changes
    }

    fn distinct(&mut self, changes: Vec<PlannedChange>) -> Arc<[PlannedChange]> {
        let version = |side: &Option<Arc<Resource>>| side.as_ref().map(|resource| resource.version.clone());
        let key = changes.iter().map(|it| (it.kind, it.name.clone(), [version(&it.before), version(&it.after)]));
        self.distinct.entry(key.collect()).or_insert_with(|| changes.into()).clone()
    }
}

/// A resource may move from one layer to another: the listener of a port that turns from TCP to HTTP. That is one change. `None`: nothing moves.
fn joined_moves(parts: &[Arc<[PlannedChange]>]) -> Option<Vec<PlannedChange>> {
    let changes = || parts.iter().flat_map(|part| part.iter());
    let removed: HashSet<_> =
        changes().filter(|it| it.after.is_none()).map(|change| (change.kind, &change.name)).collect();
    if !changes().any(|it| it.before.is_none() && removed.contains(&(it.kind, &it.name))) {
        return None;
    }
    let mut joined: BTreeMap<_, PlannedChange> = BTreeMap::new();
    for change in changes() {
        let both = joined.entry((change.kind, change.name.clone())).or_insert_with(|| change.clone());
        both.before = both.before.take().or_else(|| change.before.clone());
        both.after = both.after.take().or_else(|| change.after.clone());
    }
    let differs = |it: &PlannedChange| {
        it.before.as_ref().map(|resource| &resource.version) != it.after.as_ref().map(|resource| &resource.version)
    };
    Some(joined.into_values().filter(differs).collect())
}

fn members(engine: &Engine) -> impl Iterator<Item = (LayerIds, Arc<Member>)> {
    let of_class = |entry: &ClassEntry| entry.members.iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
    engine.classes.iter().flat_map(move |(ids, entry)| of_class(entry).into_iter().map(|member| (*ids, member)))
}

fn layer_changes(before: &Layer, after: &Layer) -> Vec<PlannedChange> {
    let mut changes = Vec::new();
    let empty = Arc::new(Table::default());
    for (kind, now) in after.tables() {
        let was = before.table(kind).unwrap_or(&empty);
        if !Arc::ptr_eq(was, now) {
            changes.extend(table_changes(kind, was, now));
        }
    }
    for (kind, was) in before.tables().filter(|(kind, _)| after.table(*kind).is_none()) {
        changes.extend(table_changes(kind, was, &empty));
    }
    changes
}

pub(crate) fn table_changes(kind: TypeUrl, was: &Table, now: &Table) -> Vec<PlannedChange> {
    let mut changes = Vec::new();
    for resource in now.resources() {
        let before = was.get(&resource.name);
        if before.is_none_or(|before| before.version != resource.version) {
            let (before, after) = (before.cloned(), Some(resource.clone()));
            changes.push(PlannedChange { kind, name: resource.name.clone(), before, after });
        }
    }
    let gone = was.resources().filter(|resource| now.get(&resource.name).is_none());
    changes.extend(gone.map(|resource| PlannedChange {
        kind,
        name: resource.name.clone(),
        before: Some(resource.clone()),
        after: None,
    }));
    changes
}

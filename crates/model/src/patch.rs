//! EnvoyFilters as patches: which of them hold for a proxy, in which order, and where. What a patch does to a message is translation's.

mod proxy_match;
mod set;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use config::kind::Kind;
use config::kinds::envoy_filter::{ApplyTo, ConfigPatch, EnvoyFilter, MatchedObject, Operation, PatchContext};
use config::kinds::json_object::JsonObject;
use config::labels::Labels;
use config::meta::Object;
use config::note::{Note, ObjectId};
use config::store::{Name, Table};
use imbl::OrdMap;

use self::proxy_match::ProxyMatch;
use crate::policy::attachment;
use crate::proxy::{Proxy, ProxyKind};

pub use set::{PatchSet, Patches};

/// One entry of `configPatches`.
#[derive(Debug)]
pub struct Patch {
    pub id: PatchId,
    pub apply_to: ApplyTo,
    pub operation: Operation,
    context: PatchContext,
    proxy: ProxyMatch,
    source: Arc<Object<EnvoyFilter>>,
    /// The value as a message, made when it is first asked for; `Err`: it is none, and why.
    encoded: OnceLock<Result<Vec<u8>, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    pub object: ObjectId,
    /// In `configPatches`.
    pub index: usize,
}

impl fmt::Display for PatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} configPatches[{}]", self.object, self.index)
    }
}

impl Patch {
    /// `None`: every object of its kind.
    pub fn object(&self) -> Option<&MatchedObject> {
        self.written().object_match.as_ref()?.object.as_ref()
    }

    /// `None`: not written; only a removal needs none.
    pub fn value(&self) -> Option<&JsonObject> {
        self.written().patch.as_ref()?.value.as_ref()
    }

    fn written(&self) -> &ConfigPatch {
        &self.source.spec.config_patches[self.id.index]
    }

    /// `None`: it cannot be read. `encode` is asked once, and must always answer the same.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Result<Vec<u8>, String>) -> Option<&[u8]> {
        self.encoded.get_or_init(|| encode(self)).as_deref().ok()
    }

    /// What is wrong with the value; `None`: nothing, or nobody asked for it yet.
    fn note(&self) -> Option<Note> {
        let why = self.encoded.get()?.as_ref().err()?;
        let field = format!("spec.configPatches[{}].patch.value", self.id.index);
        let note = Note::warning(format!("{why}; the patch is left out")).on(self.id.object.clone()).field(field);
        Some(match &self.source.meta.at {
            Some(at) => note.at(at.clone()),
            None => note,
        })
    }

    fn is_for(&self, context: PatchContext) -> bool {
        self.context == PatchContext::Any || self.context == context
    }

    /// A resource of its own: it hangs on nothing that the proxy has.
    fn adds_resource(&self) -> bool {
        self.operation == Operation::Add && matches!(self.apply_to, ApplyTo::Cluster | ApplyTo::Listener)
    }
}

/// An object with its patches, read once.
#[derive(Debug)]
struct Filter {
    object: Arc<Object<EnvoyFilter>>,
    patches: Vec<Arc<Patch>>,
}

impl Filter {
    fn new(object: &Arc<Object<EnvoyFilter>>) -> Self {
        let patches = object.spec.config_patches.iter().enumerate();
        let patches = patches.filter_map(|(index, written)| patch(object, index, written).map(Arc::new));
        Self { object: object.clone(), patches: patches.collect() }
    }
}

/// `None`: it says nothing that could be done.
fn patch(object: &Arc<Object<EnvoyFilter>>, index: usize, written: &ConfigPatch) -> Option<Patch> {
    let change = written.patch.as_ref()?;
    let wanted = written.object_match.as_ref();
    Some(Patch {
        id: PatchId { object: id(object), index },
        apply_to: written.apply_to,
        operation: operation(written.apply_to, change.operation),
        context: wanted.map(|wanted| wanted.context).unwrap_or_default(),
        proxy: wanted.and_then(|wanted| wanted.proxy.as_ref()).map(ProxyMatch::new).unwrap_or_default(),
        source: object.clone(),
        encoded: OnceLock::new(),
    })
}

/// Only lists have places to insert at.
fn operation(apply_to: ApplyTo, written: Operation) -> Operation {
    use ApplyTo::{HttpFilter, HttpRoute, ListenerFilter, NetworkFilter};
    use Operation::{InsertAfter, InsertBefore, InsertFirst};
    let list = matches!(apply_to, HttpFilter | NetworkFilter | HttpRoute | ListenerFilter);
    if !list && matches!(written, InsertAfter | InsertBefore | InsertFirst) { Operation::Add } else { written }
}

fn id(object: &Object<EnvoyFilter>) -> ObjectId {
    let meta = &object.meta;
    ObjectId { kind: Kind::EnvoyFilter, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

/// All of the mesh. An object that did not change keeps its patches, and what was read of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnvoyFilters(OrdMap<Name, Arc<Filter>>);

impl EnvoyFilters {
    pub(crate) fn new(objects: &Table<EnvoyFilter>) -> Self {
        Self(objects.iter().map(|(name, object)| (name.clone(), Arc::new(Filter::new(object)))).collect())
    }

    /// After a change of one of them.
    pub(crate) fn put(&mut self, name: &Name, object: Option<&Arc<Object<EnvoyFilter>>>) {
        match object {
            Some(object) => drop(self.0.insert(name.clone(), Arc::new(Filter::new(object)))),
            None => drop(self.0.remove(name)),
        }
    }

    /// What holds for a proxy: by priority, the root namespace first among equals, then by age and name.
    pub(crate) fn of(&self, root: &str, proxy: &Proxy, labels: &Labels) -> Patches {
        let other = (*proxy.namespace != *root).then(|| self.within(&proxy.namespace));
        let holds = |filter: &&Arc<Filter>| {
            let Object { meta, spec } = &*filter.object;
            attachment::holds(spec, &meta.namespace, &proxy.namespace, labels)
        };
        let mut filters: Vec<_> = self.within(root).chain(other.into_iter().flatten()).filter(holds).collect();
        filters.sort_by_cached_key(|filter| {
            let Object { meta, spec } = &*filter.object;
            let place = *meta.namespace != *root;
            (spec.priority, place, meta.created, format!("{}.{}", meta.name, meta.namespace))
        });
        let held = filters.iter().flat_map(|filter| &filter.patches).filter(|patch| patch.proxy.matches(proxy));
        Patches::new(held, proxy.kind)
    }

    /// Patches that could not be read.
    pub(crate) fn notes(&self) -> impl Iterator<Item = Note> {
        self.all().filter_map(|patch| patch.note())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Patch>> {
        self.0.values().flat_map(|filter| &filter.patches)
    }

    fn within(&self, namespace: &str) -> impl Iterator<Item = &Arc<Filter>> {
        let namespace: Arc<str> = Arc::from(namespace);
        let first = Name { namespace: namespace.clone(), name: Arc::from("") };
        self.0.range(first..).take_while(move |(name, _)| name.namespace == namespace).map(|(_, filter)| filter)
    }
}

/// Towards others: what a proxy of this kind calls that.
fn outbound(kind: ProxyKind) -> PatchContext {
    match kind {
        ProxyKind::Sidecar => PatchContext::SidecarOutbound,
        ProxyKind::Router => PatchContext::Gateway,
    }
}

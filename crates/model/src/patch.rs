//! EnvoyFilters as patches: which of them apply to a proxy, in which order, and to which direction. `translate` applies them to messages.

mod proxy_match;
mod set;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use config::diagnostic::{Diagnostic, ObjectId};
use config::kind::Kind;
use config::kinds::envoy_filter::{ApplyTo, ConfigPatch, EnvoyFilter, MatchedObject, Operation, PatchContext};
use config::kinds::json_object::JsonObject;
use config::labels::Labels;
use config::meta::Object;
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
    /// The value as an encoded message, computed on first use; `Err`: it is invalid, and why.
    encoded: OnceLock<Result<Vec<u8>, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatchId {
    pub object: ObjectId,
    /// The position in `configPatches`.
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
        self.spec().object_match.as_ref()?.object.as_ref()
    }

    /// `None`: not set; only a removal needs none.
    pub fn value(&self) -> Option<&JsonObject> {
        self.spec().patch.as_ref()?.value.as_ref()
    }

    fn spec(&self) -> &ConfigPatch {
        &self.source.spec.config_patches[self.id.index]
    }

    /// `None`: it is invalid. `encode` is called once, and must be deterministic.
    pub fn encoded(&self, encode: impl FnOnce(&Self) -> Result<Vec<u8>, String>) -> Option<&[u8]> {
        self.encoded.get_or_init(|| encode(self)).as_deref().ok()
    }

    /// The error of the value; `None`: it is valid, or not encoded yet.
    fn diagnostic(&self) -> Option<Diagnostic> {
        let why = self.encoded.get()?.as_ref().err()?;
        let field = format!("spec.configPatches[{}].patch.value", self.id.index);
        let diagnostic =
            Diagnostic::warning(format!("{why}; the patch is left out")).on(self.id.object.clone()).field(field);
        Some(match &self.source.meta.at {
            Some(at) => diagnostic.at(at.clone()),
            None => diagnostic,
        })
    }

    fn is_for(&self, context: PatchContext) -> bool {
        self.context == PatchContext::Any || self.context == context
    }

    /// It adds a resource, independent of those that the proxy has.
    fn adds_resource(&self) -> bool {
        self.operation == Operation::Add && matches!(self.apply_to, ApplyTo::Cluster | ApplyTo::Listener)
    }
}

/// An EnvoyFilter with its parsed patches.
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

/// `None`: it has no effect.
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

/// Only lists have positions to insert at.
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

/// All EnvoyFilters of the mesh. An unchanged object keeps its patches with their encoded values.
#[derive(Debug, Clone, Default)]
pub(crate) struct EnvoyFilters(OrdMap<Name, Arc<Filter>>);

impl EnvoyFilters {
    pub(crate) fn new(objects: &Table<EnvoyFilter>) -> Self {
        Self(objects.iter().map(|(name, object)| (name.clone(), Arc::new(Filter::new(object)))).collect())
    }

    /// After a change of one object.
    pub(crate) fn put(&mut self, name: &Name, object: Option<&Arc<Object<EnvoyFilter>>>) {
        match object {
            Some(object) => drop(self.0.insert(name.clone(), Arc::new(Filter::new(object)))),
            None => drop(self.0.remove(name)),
        }
    }

    /// The patches for a proxy: by priority, the root namespace first among equals, then by age and name.
    pub(crate) fn of(&self, root: &str, proxy: &Proxy, labels: &Labels) -> Patches {
        let other = (*proxy.namespace != *root).then(|| self.within(&proxy.namespace));
        let holds = |filter: &&Arc<Filter>| {
            let Object { meta, spec } = &*filter.object;
            attachment::applies(spec, &meta.namespace, &proxy.namespace, labels)
        };
        let mut filters: Vec<_> = self.within(root).chain(other.into_iter().flatten()).filter(holds).collect();
        filters.sort_by_cached_key(|filter| {
            let Object { meta, spec } = &*filter.object;
            let place = *meta.namespace != *root;
            (spec.priority, place, meta.created, format!("{}.{}", meta.name, meta.namespace))
        });
        let patches = filters.iter().flat_map(|filter| &filter.patches).filter(|patch| patch.proxy.matches(proxy));
        Patches::new(patches, proxy.kind)
    }

    /// Patches with invalid values.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        self.all().filter_map(|patch| patch.diagnostic())
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

/// The context of outbound traffic for this kind of proxy.
fn outbound(kind: ProxyKind) -> PatchContext {
    match kind {
        ProxyKind::Sidecar => PatchContext::SidecarOutbound,
        ProxyKind::Gateway => PatchContext::Gateway,
    }
}

//! One layer of a class's resources: a table per type, shared by every class whose key for the layer is equal, and how a refresh replaces
//! it. Which resources a layer holds is decided in `layer_kinds`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use config::diagnostic::ObjectId;
use config::intern::intern_str;
use model::{Delta, InboundKey, Mesh, PatchId, Placement};
use prost::{Message, Name};
use translate::{EncodedTracing, HttpListeners, TemplateInstance, Translated};
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::service::discovery::v3::DiscoveryResponse;
use wire::google::protobuf::Any;
use xds::{Kinds, Resource, Seq, TypeUrl, Variant};

use crate::hold::HELD_KINDS;
use crate::inbound_templates::InboundTemplates;
use crate::isolation::TranslationFailures;
use crate::provenance;
use crate::render::RenderedResource;
use crate::resource_cache::ResourceCache;
use crate::table::Table;
use crate::version::{version, version_of_pieces};

#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    /// One table per type.
    tables: Box<[(TypeUrl, Arc<Table>)]>,
    /// The drafts of the outbound HTTP listeners: of the outbound layer itself, or of the outbound layer that this one was built on.
    pub(crate) http: Arc<HttpListeners>,
}

/// A resource with its type URL, encoded once and shared by every stream.
#[derive(Clone)]
pub(crate) struct EncodedResource {
    pub(crate) kind: TypeUrl,
    pub(crate) resource: Arc<Resource>,
}

impl EncodedResource {
    pub(crate) fn new(made: RenderedResource) -> Self {
        Self { kind: made.kind, resource: Arc::new(encode(made)) }
    }

    /// A listener that is an instance of a template.
    pub(crate) fn from_template(name: &str, made: &Translated<TemplateInstance>) -> Self {
        let TemplateInstance { template, literals, splices } = &made.value;
        let type_url = Listener::type_url();
        let version = version_of_pieces(&type_url, made.value.pieces());
        let instance = xds::SplicedTemplate { type_url: &type_url, template: template.clone(), literals, splices };
        let resource = Resource::from_template(
            intern_str(name),
            version,
            &instance,
            provenance_of(&made.made_from, &made.patched),
        );
        Self { kind: TypeUrl::Listener, resource: Arc::new(resource) }
    }

    /// The resource of the previous layer if version and provenance are equal.
    pub(crate) fn reuse_or_encode(made: RenderedResource, previous: &Layer) -> Self {
        let same = |old: &&Arc<Resource>| {
            old.version == version(&made.any) && old.provenance == provenance_of(&made.made_from, &made.patched)
        };
        let old = previous.table(made.kind).and_then(|table| table.get(&made.name)).filter(same).cloned();
        match old {
            Some(resource) => Self { kind: made.kind, resource },
            None => Self::new(made),
        }
    }
}

/// Inputs and intermediate results shared by the layers of one class while they are built.
pub(crate) struct BuildContext<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) resources: &'a mut ResourceCache,
    /// The client id in `resources`.
    pub(crate) client: usize,
    /// Written while the outbound layer is built, read by the listener layer.
    pub(crate) http: Arc<HttpListeners>,
    /// For proxies that join, or that a change may move. Where only the scope changed, each layer is built without templates.
    pub(crate) inbound_templates: Option<(&'a mut InboundTemplates, &'a InboundKey)>,
    /// Written while the listener layer is built, read by the inbound layer.
    pub(crate) tracing: Option<EncodedTracing>,
    /// The layer before the change: what cannot be translated stays as it was there. Empty in a build from scratch.
    pub(crate) previous: Layer,
    pub(crate) failures: &'a mut TranslationFailures,
}

impl BuildContext<'_> {
    /// The resources of these types in the layer before.
    pub(crate) fn previous_resources(&self, kinds: Kinds) -> Vec<EncodedResource> {
        let tables = self.previous.tables().filter(|(kind, _)| kinds.contains(*kind));
        let resources = tables.flat_map(|(kind, table)| table.resources().map(move |resource| (kind, resource)));
        resources.map(|(kind, resource)| EncodedResource { kind, resource: resource.clone() }).collect()
    }

    /// The resource of this name in the layer before.
    pub(crate) fn previous_resource(&self, kind: TypeUrl, name: &str) -> Option<EncodedResource> {
        let resource = self.previous.table(kind)?.get(name)?.clone();
        Some(EncodedResource { kind, resource })
    }
}

/// Identifies a refresh: its sequence, when the change arrived, and its round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefreshStamp {
    pub(crate) seq: Seq,
    pub(crate) began: Option<Instant>,
    /// Counts refreshes, including those that changed nothing for any stream.
    pub(crate) round: u64,
}

/// The input of a refresh.
#[derive(Clone, Copy)]
pub(crate) struct Refresh<'a> {
    /// The previous mesh, or the new one at the first load.
    pub(crate) before: &'a Mesh,
    pub(crate) mesh: &'a Arc<Mesh>,
    pub(crate) delta: &'a Delta,
    pub(crate) stamp: RefreshStamp,
}

/// The result of rebuilding a layer, as far as it was rebuilt.
pub(crate) enum ResourceUpdate {
    /// Some resources. A name in `covered` without a resource in `made` is removed.
    Partial { made: Vec<EncodedResource>, covered: BTreeSet<(TypeUrl, Arc<str>)> },
    /// All resources of these types: any other name of the types is removed.
    Full { made: Vec<EncodedResource>, kinds: Kinds },
}

/// What changed for the proxy that represents all proxies of a layer.
pub(crate) struct PlacementChange<'a> {
    pub(crate) delta: &'a Delta,
    /// The placement of the same proxy in the previous mesh, and in the new one.
    pub(crate) before: &'a Placement,
    pub(crate) now: &'a Placement,
}

/// The kind of a layer: which resources it holds and how a change updates them.
pub(crate) trait LayerKind {
    /// Builds every resource from scratch.
    fn build(context: &mut BuildContext<'_>, placement: &Placement) -> Vec<EncodedResource>;
    /// Rebuilds what the change affects.
    fn rebuild(context: &mut BuildContext<'_>, change: &PlacementChange<'_>, previous: &Layer) -> Vec<ResourceUpdate>;
    const KINDS: Kinds;
}

impl Layer {
    pub(crate) fn new<P: LayerKind>(
        context: &mut BuildContext<'_>,
        placement: &Placement,
        stamp: RefreshStamp,
    ) -> Self {
        context.previous = Self::default();
        let made = P::build(context, placement);
        let tables =
            Self::default().apply(ResourceUpdate::Full { made, kinds: P::KINDS }, stamp).unwrap_or_default().tables;
        Self { tables, http: context.http.clone() }
    }

    /// The layer after a change. `None`: nothing changed.
    pub(crate) fn next<P: LayerKind>(
        &self,
        context: &mut BuildContext<'_>,
        change: &PlacementChange<'_>,
        stamp: RefreshStamp,
    ) -> Option<Self> {
        context.previous = self.clone();
        let mut next: Option<Self> = None;
        for update in P::rebuild(context, change, self) {
            let base = next.as_ref().unwrap_or(self);
            if let Some(changed) = base.apply(update, stamp) {
                next = Some(changed);
            }
        }
        if Arc::ptr_eq(&self.http, &context.http) {
            return next;
        }
        let tables = next.map_or_else(|| self.tables.clone(), |next| next.tables);
        Some(Self { tables, http: context.http.clone() })
    }

    pub(crate) fn table(&self, kind: TypeUrl) -> Option<&Arc<Table>> {
        self.tables.iter().find(|(of, _)| *of == kind).map(|(_, table)| table)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.tables.iter().map(|(kind, table)| (*kind, table))
    }

    /// The types whose last change was at this sequence.
    pub(crate) fn changed_at(&self, seq: Seq) -> Kinds {
        self.tables().filter(|(_, table)| table.seq == seq).map(|(kind, _)| kind).collect()
    }

    fn apply(&self, update: ResourceUpdate, stamp: RefreshStamp) -> Option<Self> {
        let (made, mut covered, whole) = match update {
            ResourceUpdate::Partial { made, covered } => (made, covered, Kinds::NONE),
            ResourceUpdate::Full { made, kinds } => (made, BTreeSet::new(), kinds),
        };
        let mut by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>> = whole.iter().map(|kind| (kind, Vec::new())).collect();
        for EncodedResource { kind, resource } in made {
            covered.remove(&(kind, resource.name.clone()));
            by_kind.entry(kind).or_default().push(resource);
        }
        let mut gone: BTreeMap<TypeUrl, Vec<Arc<str>>> = BTreeMap::new();
        for (kind, name) in covered {
            gone.entry(kind).or_default().push(name);
            by_kind.entry(kind).or_default();
        }
        self.apply_tables(by_kind, &gone, whole, stamp)
    }

    fn apply_tables(
        &self,
        by_kind: BTreeMap<TypeUrl, Vec<Arc<Resource>>>,
        gone: &BTreeMap<TypeUrl, Vec<Arc<str>>>,
        whole: Kinds,
        RefreshStamp { seq, began, .. }: RefreshStamp,
    ) -> Option<Self> {
        let empty = Table::default();
        let mut tables: BTreeMap<_, _> = self.tables.iter().cloned().collect();
        let mut changed = false;
        for (kind, made) in by_kind {
            let old = tables.get(&kind).map_or(&empty, |table| &**table);
            let next = if whole.contains(kind) {
                old.replace(seq, began, made)
            } else {
                old.update(seq, began, made, gone.get(&kind).into_iter().flatten().cloned())
            };
            if let Some(next) = next {
                if HELD_KINDS.contains(kind) {
                    next.keep_superseded(old);
                }
                tables.insert(kind, Arc::new(next));
                changed = true;
            }
        }
        changed.then(|| Self { tables: tables.into_iter().collect(), http: self.http.clone() })
    }
}

/// The objects that a resource was translated from and the patches applied to it, as texts.
fn provenance_of(made_from: &BTreeSet<ObjectId>, patched: &BTreeSet<PatchId>) -> Vec<Arc<str>> {
    let mut objects = provenance::interned_texts(made_from);
    objects.extend(provenance::interned_texts(patched));
    objects
}

/// The message of an encoded resource. xDS keeps it as an entry of a response.
pub(crate) fn packed_message(resource: &Resource) -> Option<Any> {
    DiscoveryResponse::decode(resource.entry(Variant::Sotw)).ok()?.resources.pop()
}

/// Encodes a resource into the bytes that every stream shares.
pub(crate) fn encode(made: RenderedResource) -> Resource {
    let RenderedResource { name, any, made_from, patched, .. } = made;
    Resource::new(intern_str(&name), version(&any), &any, provenance_of(&made_from, &patched))
}

/// For one stream, which asked for a name that no layer has. Any proxy can make up names, so none of them stays in a pool of this process.
pub(crate) fn encode_unshared(made: &RenderedResource) -> Resource {
    Resource::new(made.name.clone(), version(&made.any), &made.any, provenance_of(&made.made_from, &made.patched))
}

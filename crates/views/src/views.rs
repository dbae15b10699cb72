//! All classes and their members. One writer refreshes them; streams read what was published.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use config::diagnostic::Diagnostic;
use config::store::Snapshot;
use model::{
    Assurance, ClassKeys, CredentialReader, Delta, Environment, Mesh, Placement, Proxy, ProxyConfigCache, ProxyFacts,
};
use wire::envoy::config::core::v3::Node;
use xds::{Caller, Journal, Kinds, Membership, NodeError, Notifier, Provider, ProxyInfo, Push, Seq, TypeUrl};

use crate::admission;
use crate::layer::{Layer, Refresh, RefreshStamp};
use crate::layer_caches::{LayerCaches, LayerIds, RefreshEffect};
use crate::member::{ClassHandle, Member};
use crate::node;
use crate::notifications::PendingNotifications;
use crate::patch_reach::{self, PatchReach};
use crate::secrets::{Recheck, SecretAuthorizer, SecretCache, Secrets};
use crate::view::View;

pub struct Views {
    env: Arc<Environment>,
    state: Mutex<State>,
    proxy_configs: Mutex<ProxyConfigCache>,
    journal: Arc<Journal>,
    /// `None`: secrets are not served.
    secret_cache: Option<Arc<SecretCache>>,
}

#[derive(Default)]
struct State {
    /// `None`: no configuration was loaded yet.
    mesh: Option<Arc<Mesh>>,
    seq: Seq,
    /// Counts refreshes.
    round: u64,
    /// Classes are being refreshed. Stays set if a panic interrupts that.
    refreshing: bool,
    caches: LayerCaches,
    /// Ordered, so that classes which share an outbound layer are refreshed one after the other.
    classes: BTreeMap<LayerIds, ClassEntry>,
}

/// A class and its members. A class without members is dropped at the next refresh.
struct ClassEntry {
    handle: Arc<ClassHandle>,
    /// Of one member, which represents all: the class key holds everything that translation reads.
    facts: Arc<ProxyFacts>,
    /// The round in which the class was last built or refreshed.
    round: u64,
    members: Vec<Weak<Member>>,
}

/// The streams that a refresh affects.
#[derive(Default)]
struct AffectedStreams {
    /// May contain duplicates.
    classes: Vec<LayerIds>,
    /// With the types that changed for each.
    members: Vec<(Arc<Member>, Kinds)>,
}

impl AffectedStreams {
    fn count_classes(&mut self) -> usize {
        self.classes.sort_unstable();
        self.classes.dedup();
        self.classes.len()
    }
}

/// A proxy that a change may move into another class, with the layers that it had.
struct RelocationCandidate {
    from: LayerIds,
    previous: [Arc<Layer>; 3],
    member: Arc<Member>,
}

impl Views {
    /// Without secrets.
    pub fn new(env: Environment) -> Arc<Self> {
        Self::with_cache(env, None)
    }

    /// With secrets for authenticated proxies.
    pub fn with_secrets(env: Environment, authorizer: Arc<dyn SecretAuthorizer>) -> Arc<Self> {
        Self::with_cache(env, Some(Arc::new(SecretCache::new(authorizer))))
    }

    fn with_cache(env: Environment, secret_cache: Option<Arc<SecretCache>>) -> Arc<Self> {
        let (state, proxy_configs) = (Mutex::default(), Mutex::default());
        Arc::new(Self { env: Arc::new(env), state, proxy_configs, journal: Arc::default(), secret_cache })
    }

    /// Applies a snapshot and notifies the affected streams. Returns whether any proxy's configuration changed.
    pub fn refresh(&self, snapshot: &Snapshot, began: Instant) -> bool {
        let notifications = self.refresh_with_cause("", snapshot, began);
        let changed = !notifications.is_empty();
        notifications.notify_all();
        changed
    }

    /// Applies a snapshot. `cause` is recorded in the journal. The caller sends the notifications.
    pub fn refresh_with_cause(&self, cause: &str, snapshot: &Snapshot, began: Instant) -> PendingNotifications {
        let started = Instant::now();
        let mut state = self.state();
        let (mesh, delta) = match &state.mesh {
            Some(mesh) => mesh.next(snapshot),
            None => (Mesh::new(snapshot, &self.env), Delta { everything: true, ..Delta::default() }),
        };
        translate::read_patches(&mesh);
        let mesh = Arc::new(mesh);
        let before = state.mesh.replace(mesh.clone());
        let first = before.is_none();
        if delta.is_empty() && delta.credentials.is_empty() && !first {
            return PendingNotifications::new(state.seq, Vec::new());
        }
        state.refreshing = true;
        state.round += 1;
        let stamp = RefreshStamp { seq: state.seq + 1, began: Some(began), round: state.round };
        let mut affected = AffectedStreams::default();
        if !delta.is_empty() || first {
            let before = before.as_ref().unwrap_or(&mesh);
            affected = state.refresh_views(Refresh { before, mesh: &mesh, delta: &delta, stamp });
        }
        if let Some(secret_cache) = &self.secret_cache {
            let concerned = first || delta.everything || delta.gateways || !delta.credentials.is_empty();
            secret_cache.set_mesh(&mesh, concerned.then_some(stamp.seq));
            if concerned {
                state.recheck_secrets(Recheck::Changed(&delta), &mut affected);
                // Secrets that are looked up from now on carry this sequence.
                state.seq = stamp.seq;
            }
        }
        state.refreshing = false;
        if affected.members.is_empty() && !first {
            return PendingNotifications::new(state.seq, Vec::new());
        }
        state.seq = stamp.seq;
        drop(state);
        self.journal.begin(Push {
            seq: stamp.seq,
            cause: cause.to_owned(),
            debounce: started.saturating_duration_since(began),
            refresh: started.elapsed(),
            classes: affected.count_classes(),
            streams: affected.members.len(),
            ..Push::default()
        });
        PendingNotifications::new(stamp.seq, affected.members)
    }

    /// Looks up withheld secrets again after the authorizer's decisions changed, and notifies the streams that get one.
    pub fn recheck_secrets(&self) {
        let (mut state, mut affected) = (self.state(), AffectedStreams::default());
        let (Some(secret_cache), Some(mesh)) = (&self.secret_cache, state.mesh.clone()) else { return };
        state.seq += 1;
        secret_cache.set_mesh(&mesh, Some(state.seq));
        state.recheck_secrets(Recheck::Everything, &mut affected);
        let seq = state.seq;
        drop(state);
        PendingNotifications::new(seq, affected.members).notify_all();
    }

    /// The current mesh; `None` before the first load.
    pub fn mesh(&self) -> Option<Arc<Mesh>> {
        self.state().mesh.clone()
    }

    /// Objects that could not be translated because of an internal error.
    pub fn translation_diagnostics(&self) -> Vec<Diagnostic> {
        self.state().caches.failures.diagnostics()
    }

    /// A panic interrupted a refresh after the mesh was computed: streams may have been lost, and the process must be restarted.
    pub fn is_broken(&self) -> bool {
        self.state().refreshing
    }

    /// The number of resources and classes that each EnvoyFilter patch changed.
    pub fn patch_reach(&self) -> Vec<PatchReach> {
        let state = self.state();
        let Some(mesh) = state.mesh.clone() else { return Vec::new() };
        let classes: Vec<_> = state.classes.keys().map(|ids| state.caches.layers(*ids)).collect();
        drop(state);
        patch_reach::count_patch_reach(&mesh, &classes)
    }

    /// The number of classes: distinct configurations.
    pub fn class_count(&self) -> usize {
        self.state().classes.len()
    }

    fn join_with(&self, proxy: Proxy, secrets: Option<Secrets>) -> Result<Membership, NodeError> {
        let proxy = Arc::new(proxy);
        let mut state = self.state();
        let mesh = state.mesh.clone().ok_or_else(not_loaded)?;
        let notifier = Notifier::new(state.seq);
        let entry = state.class_entry_for(&mesh, &proxy);
        let member = Arc::new(Member::new(proxy.clone(), entry.handle.clone(), notifier.clone(), secrets));
        entry.members.push(Arc::downgrade(&member));
        Ok(Membership { class: member, proxy: proxy_info(&proxy), notifier })
    }

    /// Reads a node message once. Admission compares this proxy with the caller, and the same value is placed and served.
    fn read_node(&self, node: &Node) -> Result<Proxy, NodeError> {
        // Entries are inserted whole, so a panic leaves no wrong one.
        let mut proxy_configs = self.proxy_configs.lock().unwrap_or_else(PoisonError::into_inner);
        node::read_proxy(node, &mut proxy_configs).map_err(|error| NodeError::Invalid(error.to_string()))
    }

    /// The proxy to serve to this caller. `None` on an unauthenticated port.
    pub fn admit(&self, caller: Option<&Caller>, node: &Node) -> Result<Proxy, NodeError> {
        let mut proxy = self.read_node(node)?;
        if let Some(caller) = caller {
            let mesh = self.mesh().ok_or_else(not_loaded)?;
            admission::bind(&mut proxy, caller, &mesh).map_err(NodeError::Denied)?;
        }
        Ok(proxy)
    }

    // A panic during a refresh leaves complete views and layers behind: they are replaced, not edited.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the affected streams. The cost grows with the classes that the change affects and with the proxies that it may move, not
    /// with all proxies.
    fn refresh_views(&mut self, refresh: Refresh<'_>) -> AffectedStreams {
        self.caches.invalidate(refresh.delta);
        let mut affected = AffectedStreams::default();
        let candidates = self.refresh_classes(refresh, &mut affected);
        // A proxy that returns to a class which all members left finds its history.
        let moves: Vec<_> =
            candidates.into_iter().filter_map(|candidate| self.relocate(candidate, refresh, &mut affected)).collect();
        self.publish(refresh.stamp);
        // Members move after publication, when their new class is complete.
        for (member, handle) in moves {
            member.move_to(handle, refresh.stamp.seq);
        }
        let before = self.classes.len();
        self.classes.retain(|_, entry| !entry.members.is_empty());
        if self.classes.len() < before {
            self.caches.retain(self.classes.keys().copied());
        }
        affected
    }

    /// Refreshes the classes for the members that stay. Returns the members that may have to move.
    fn refresh_classes(&mut self, refresh: Refresh<'_>, affected: &mut AffectedStreams) -> Vec<RelocationCandidate> {
        let Self { caches, classes, .. } = self;
        let mut candidates = Vec::new();
        let all_stay = !refresh.delta.may_change_any_class();
        for (&ids, entry) in classes.iter_mut() {
            let ClassEntry { handle, facts, round, members } = entry;
            members.retain(|member| {
                if all_stay {
                    return member.strong_count() > 0;
                }
                let Some(member) = member.upgrade() else { return false };
                let stays = !refresh.delta.may_change_class(&member.proxy);
                if !stays {
                    let previous = handle.view().snapshot().layers().map(Arc::clone);
                    candidates.push(RelocationCandidate { from: ids, previous, member });
                }
                stays
            });
            if members.is_empty() {
                continue;
            }
            let is_current = |own_layers: &[Arc<Layer>; 2]| handle.view().has_own_layers(own_layers);
            let effect = caches.refresh_class(ids, facts, is_current, refresh);
            if let RefreshEffect::Unchanged | RefreshEffect::Changed(_) = effect {
                *round = refresh.stamp.round;
            }
            if let RefreshEffect::Changed(kinds) = effect {
                affected.members.extend(members.iter().filter_map(|member| Some((member.upgrade()?, kinds))));
                affected.classes.push(ids);
            }
        }
        candidates
    }

    fn publish(&mut self, stamp: RefreshStamp) {
        let replaced = self.caches.publish();
        if replaced.is_empty() {
            return;
        }
        for (&ids, entry) in self.classes.iter().filter(|([first, ..], _)| replaced.contains(first)) {
            let (published, own_layers) = (self.caches.published(ids).clone(), self.caches.own_layers(ids));
            entry.handle.refresh(entry.handle.view().next(published, entry.facts.clone(), own_layers, stamp.seq));
        }
    }

    /// Adds the streams for which a requested secret changed.
    fn recheck_secrets(&self, recheck: Recheck<'_>, affected: &mut AffectedStreams) {
        let secret: Kinds = [TypeUrl::Secret].into_iter().collect();
        let members = affected.members.iter().enumerate();
        let known: HashMap<*const Member, usize> = members.map(|(at, (member, _))| (Arc::as_ptr(member), at)).collect();
        for (&ids, entry) in &self.classes {
            for member in
                entry.members.iter().filter_map(Weak::upgrade).filter(|member| member.recheck_secrets(recheck))
            {
                match known.get(&Arc::as_ptr(&member)) {
                    Some(at) => affected.members[*at].1.insert(TypeUrl::Secret),
                    None => {
                        affected.members.push((member, secret));
                        affected.classes.push(ids);
                    }
                }
            }
        }
    }

    /// Places a proxy again whose class may have changed. Returns the new class if it moves.
    fn relocate(
        &mut self,
        RelocationCandidate { from, previous, member }: RelocationCandidate,
        refresh: Refresh<'_>,
        affected: &mut AffectedStreams,
    ) -> Option<(Arc<Member>, Arc<ClassHandle>)> {
        let Refresh { before, mesh, stamp, .. } = refresh;
        match (before.has_pod_of(&member.proxy), mesh.has_pod_of(&member.proxy)) {
            (true, false) => member.notifier.mark_workload_gone(),
            (false, true) => member.notifier.mark_workload_present(),
            _ => {}
        }
        let placement = mesh.place(&member.proxy);
        let class = ClassKeys::of(mesh, &placement);
        let known = self.caches.find(&class);
        let fresh = known.filter(|ids| self.classes.get(ids).is_some_and(|entry| entry.round == stamp.round));
        let ids = fresh.unwrap_or_else(|| {
            let ids = self.caches.refresh_or_build(class, &placement, refresh);
            let caches = &self.caches;
            let facts = placement.facts.clone();
            let entry = self.classes.entry(ids).or_insert_with(|| ClassEntry::new(caches, placement, ids, stamp));
            (entry.facts, entry.round) = (facts, stamp.round);
            ids
        });
        let entry = self.classes.get_mut(&ids).expect("it was there or was inserted above");
        entry.members.push(Arc::downgrade(&member));
        let now = self.caches.layers(ids);
        if from != ids || now.iter().zip(&previous).any(|(now, previous)| !Arc::ptr_eq(now, previous)) {
            affected.classes.push(ids);
            affected.members.push((member.clone(), Kinds::ALL));
        }
        (from != ids).then(|| (member, entry.handle.clone()))
    }

    fn class_entry_for(&mut self, mesh: &Arc<Mesh>, proxy: &Arc<Proxy>) -> &mut ClassEntry {
        let placement = mesh.place(proxy);
        let stamp = RefreshStamp { seq: self.seq, began: None, round: self.round };
        let ids = self.caches.get_or_build(ClassKeys::of(mesh, &placement), mesh, &placement, stamp);
        let caches = &self.caches;
        self.classes.entry(ids).or_insert_with(|| ClassEntry::new(caches, placement, ids, stamp))
    }
}

impl ClassEntry {
    fn new(caches: &LayerCaches, placement: Placement, ids: LayerIds, stamp: RefreshStamp) -> Self {
        let (facts, published) = (placement.facts, caches.published(ids).clone());
        let view = View::new(published, facts.clone(), caches.own_layers(ids), stamp.seq);
        Self { handle: Arc::new(ClassHandle::new(view)), facts, round: stamp.round, members: Vec::new() }
    }
}

impl Provider for Views {
    fn ready(&self) -> bool {
        self.state().mesh.is_some()
    }

    fn join(&self, node: &Node) -> Result<Membership, NodeError> {
        self.join_with(self.admit(None, node)?, None)
    }

    fn join_as(&self, caller: Option<&Caller>, node: &Node) -> Result<Membership, NodeError> {
        let proxy = self.admit(caller, node)?;
        let reader = caller.and_then(|caller| secret_reader(caller, &proxy, &self.env));
        let secrets = reader.zip(self.secret_cache.clone()).map(|(reader, cache)| Secrets::new(cache, reader));
        self.join_with(proxy, secrets)
    }

    fn memory_bytes(&self) -> usize {
        /// The size of a table entry: a pointer to the resource and its sequence.
        const NAME: usize = 16;
        let state = self.state();
        let members: usize = state.classes.values().map(|entry| entry.members.len()).sum();
        state.caches.name_count() * NAME
            + state.classes.len() * (size_of::<ClassEntry>() + size_of::<View>())
            + members * size_of::<Member>()
    }

    fn release_caches(&self) {
        let mut state = self.state();
        state.caches.drop_templates();
        let views: Vec<_> = state.classes.values().map(|entry| entry.handle.view()).collect();
        drop(state);
        views.iter().for_each(|view| view.evict_unused());
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        Some(self.journal.clone())
    }
}

/// The identity that authorizes access to Secrets; `None`: unauthenticated, or the proxy belongs to another cluster.
fn secret_reader(caller: &Caller, proxy: &Proxy, env: &Environment) -> Option<CredentialReader> {
    let cluster = &proxy.metadata.cluster_id;
    if !cluster.is_empty() && **cluster != *env.cluster_id {
        return None;
    }
    let service_account = match proxy.assurance {
        Assurance::Authenticated | Assurance::Strict => proxy.service_account.clone(),
        // The node was not compared with its caller, so the namespace is compared here.
        Assurance::Claimed => caller
            .accounts()
            .find(|(namespace, _)| **namespace == *proxy.namespace)
            .map(|(_, account)| account.into())?,
    };
    Some(CredentialReader { namespace: proxy.namespace.clone(), service_account })
}

fn not_loaded() -> NodeError {
    NodeError::Invalid("nothing is loaded yet; try again".into())
}

fn proxy_info(proxy: &Proxy) -> ProxyInfo {
    ProxyInfo {
        id: proxy.id.to_string(),
        kind: match proxy.kind {
            model::ProxyKind::Sidecar => "sidecar".into(),
            model::ProxyKind::Gateway => "router".into(),
        },
        namespace: proxy.namespace.to_string(),
        version: proxy.metadata.istio_version.to_string(),
        cluster: proxy.metadata.cluster_id.to_string(),
        locality: proxy.locality.to_string(),
        proxyless: false,
    }
}

//! The engine in force, and what is done with it: refreshes replace it, proxies join its classes. Nothing is computed while its lock is held.

mod holding;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use config::diagnostic::Diagnostic;
use config::store::Snapshot;
use model::{Assurance, CredentialReader, Environment, Mesh, Placement, Proxy, ProxyConfigCache};
use wire::envoy::config::core::v3::Node;
use xds::{
    Caller, Journal, Kinds, Membership, NackReport, NodeError, Notifier, Provider, ProxyInfo, Push, Seq, TypeUrl,
    Variant,
};

use crate::admission;
use crate::class_limits::{ClassClient, ClassCounts, ClassLimits};
use crate::dependencies;
use crate::effects::AffectedStreams;
use crate::engine::{ClassEntry, Engine, Step};
use crate::key_fingerprint::FingerprintedKeys;
use crate::layer_caches::LayerIds;
use crate::member::{Member, SharedHolds, StreamOpener};
use crate::node;
use crate::notifications::PendingNotifications;
use crate::patch_reach::{self, PatchReach};
use crate::plan::Plan;
use crate::recording::{ClassMove, LayerKey, LayerSnapshot, PushCause, PushRecord, Records};
use crate::secrets::{Recheck, SecretAuthorizer, SecretCache, Secrets};
use crate::view::View;
pub use holding::{HoldInForce, NackListener, NackedResource};

pub struct Views {
    env: Arc<Environment>,
    /// Never held while anything is computed: streams, probes and joins need it.
    state: Mutex<State>,
    /// Held during a refresh: one at a time.
    refreshing: Mutex<()>,
    /// Held while the class of a proxy is built: one at a time, beside a refresh.
    building: Mutex<()>,
    proxy_configs: Mutex<ProxyConfigCache>,
    journal: Arc<Journal>,
    /// `None`: secrets are not served.
    secret_cache: Option<Arc<SecretCache>>,
    class_limits: ClassLimits,
    /// Those of the engine in force, for streams.
    holds: SharedHolds,
    /// Not set: nothing is held.
    nack_listener: OnceLock<NackListener>,
}

#[derive(Default)]
struct State {
    /// The engine in force.
    engine: Engine,
    /// `Some` during a refresh: members that joined since it began.
    joined: Option<Vec<Weak<Member>>>,
    /// Classes that the last sweep found unused.
    unused: HashSet<LayerIds>,
    /// Classes built since the last sweep.
    built: usize,
    class_counts: ClassCounts,
    /// For a history. `None`: nobody keeps one.
    records: Option<Records>,
    /// Effects are being applied. Stays set if a panic interrupts that.
    committing: bool,
}

/// Members that joined during a refresh and are placed while the lock is held; more of them are placed before it is taken.
const MAX_PLACED_UNDER_LOCK: usize = 16;

/// So many classes more than there are in use may be built before unused ones are dropped at once: streams that end leave their class for
/// some seconds to proxies that reconnect, and a client can open a stream of a new class as often as it likes.
const MAX_UNUSED_CLASSES: usize = 32;

/// After so many attempts to join, each overtaken by a refresh, a proxy waits for the refresh instead.
const MAX_ATTEMPTS: usize = 3;

impl Views {
    /// Without secrets.
    pub fn new(env: Environment) -> Arc<Self> {
        Self::limited(env, ClassLimits::default())
    }

    /// Without secrets.
    pub fn limited(env: Environment, class_limits: ClassLimits) -> Arc<Self> {
        Self::with_cache(env, class_limits, None)
    }

    /// With secrets for authenticated proxies.
    pub fn with_secrets(
        env: Environment,
        class_limits: ClassLimits,
        authorizer: Arc<dyn SecretAuthorizer>,
    ) -> Arc<Self> {
        Self::with_cache(env, class_limits, Some(Arc::new(SecretCache::new(authorizer))))
    }

    fn with_cache(env: Environment, class_limits: ClassLimits, secret_cache: Option<Arc<SecretCache>>) -> Arc<Self> {
        Arc::new(Self {
            class_limits,
            env: Arc::new(env),
            state: Mutex::default(),
            refreshing: Mutex::default(),
            building: Mutex::default(),
            proxy_configs: Mutex::default(),
            journal: Arc::default(),
            secret_cache,
            holds: SharedHolds::default(),
            nack_listener: OnceLock::new(),
        })
    }

    /// Applies a snapshot and notifies the affected streams. Returns whether any proxy's configuration changed.
    pub fn refresh(&self, snapshot: &Snapshot, began: Instant) -> bool {
        let notifications = self.refresh_with_cause(&PushCause::default(), snapshot, began);
        let changed = !notifications.is_empty();
        notifications.notify_all();
        changed
    }

    /// Applies a snapshot. `cause` is recorded in the journal. The caller sends the notifications.
    pub fn refresh_with_cause(&self, cause: &PushCause, snapshot: &Snapshot, began: Instant) -> PendingNotifications {
        let started = Instant::now();
        let _refreshing = lock(&self.refreshing);
        let base = self.begin_refresh();
        let step = base.step(snapshot, &self.env, began);
        let before = base.caches.snapshot();
        drop(base);
        let (first, stamp) = (step.first, step.stamp);
        let concerns_secrets = first || dependencies::concerns_secrets(&step.delta);
        let delta = concerns_secrets.then(|| step.delta.clone());
        if let (Some(secret_cache), Some(mesh)) = (&self.secret_cache, &step.engine.mesh) {
            secret_cache.set_mesh(mesh, concerns_secrets.then_some(stamp.seq));
        }
        let mut affected = self.commit(step, cause, before);
        if self.secret_cache.is_some()
            && let Some(delta) = &delta
        {
            self.recheck_secrets_of_members(Recheck::Changed(delta), &mut affected);
        }
        // Secrets that are looked up from now on carry this sequence.
        let seq = self.advance(if self.secret_cache.is_some() && concerns_secrets { stamp.seq } else { 0 });
        if affected.members.is_empty() && !first {
            return PendingNotifications::new(seq, Vec::new());
        }
        self.journal.begin(Push {
            seq: stamp.seq,
            cause: cause.text.clone(),
            debounce: started.saturating_duration_since(began),
            refresh: started.elapsed(),
            classes: affected.count_classes(),
            streams: affected.members.len(),
            ..Push::default()
        });
        PendingNotifications::new(stamp.seq, affected.members)
    }

    /// What would change for the proxies that are connected now if `change` turned the objects in force into others. Nothing is put in force,
    /// and a refresh may run meanwhile. `None`: nothing is loaded yet.
    pub fn plan(&self, change: impl FnOnce(&Snapshot) -> Arc<Snapshot>) -> Option<Plan> {
        let engine = self.state().engine.clone();
        let mesh = engine.mesh.clone()?;
        let step = engine.step(&change(mesh.all_objects()), &self.env, Instant::now());
        Some(Plan::new(&engine, mesh, step))
    }

    /// The engine in force. Members that join from now on are placed again when the refresh ends.
    fn begin_refresh(&self) -> Engine {
        let mut state = self.state();
        state.joined = Some(Vec::new());
        state.engine.clone()
    }

    /// Puts the engine of a step in force and applies its effects. Returns the streams to notify.
    fn commit(&self, mut step: Step, cause: &PushCause, before: LayerSnapshot) -> AffectedStreams {
        loop {
            let mut state = self.state();
            let joined = state.joined.take().unwrap_or_default();
            if !step.refreshed {
                (state.engine.mesh, state.engine.round) = (step.engine.mesh, step.engine.round);
                return AffectedStreams::default();
            }
            if joined.len() > MAX_PLACED_UNDER_LOCK {
                state.joined = Some(Vec::new());
                drop(state);
                step.relocate_joined(&joined);
                continue;
            }
            step.relocate_joined(&joined);
            let (first, seq) = (step.first, step.stamp.seq);
            let (engine, effects) = step.finish();
            state.committing = true;
            state.engine = engine;
            let mut affected = effects.apply();
            state.committing = false;
            if first || !affected.members.is_empty() {
                state.engine.seq = seq;
                state.record(seq, cause, before, &mut affected);
            }
            return affected;
        }
    }

    /// From now on pushes are recorded, for whoever takes the records.
    pub fn keep_records(&self) {
        self.state().records.get_or_insert_default();
    }

    /// Pushes have greater numbers than this one, which is of a process before. To be called before the first refresh.
    pub fn continue_after(&self, seq: Seq) {
        self.advance(seq);
    }

    /// What happened since the last call, and what is in force after that. `None`: pushes are not recorded.
    pub fn take_records(&self) -> Option<Records> {
        let mut state = self.state();
        let records = std::mem::take(state.records.as_mut()?);
        Some(Records { layers: state.engine.caches.snapshot(), seq: state.engine.seq, ..records })
    }

    /// Moves the sequence forward, to at least this one. Returns the sequence.
    fn advance(&self, seq: Seq) -> Seq {
        let mut state = self.state();
        state.engine.seq = state.engine.seq.max(seq);
        state.engine.seq
    }

    /// Looks up withheld secrets again after the authorizer's decisions changed, and notifies the streams that get one.
    pub fn recheck_secrets(&self) {
        let _refreshing = lock(&self.refreshing);
        let (seq, mesh) = {
            let state = self.state();
            (state.engine.seq + 1, state.engine.mesh.clone())
        };
        let (Some(secret_cache), Some(mesh)) = (&self.secret_cache, mesh) else { return };
        secret_cache.set_mesh(&mesh, Some(seq));
        let mut affected = AffectedStreams::default();
        self.recheck_secrets_of_members(Recheck::Everything, &mut affected);
        self.advance(seq);
        PendingNotifications::new(seq, affected.members).notify_all();
    }

    /// Adds the streams for which a requested secret changed.
    fn recheck_secrets_of_members(&self, recheck: Recheck<'_>, affected: &mut AffectedStreams) {
        let secret: Kinds = [TypeUrl::Secret].into_iter().collect();
        let members = affected.members.iter().enumerate();
        let known: HashMap<*const Member, usize> = members.map(|(at, (member, _))| (Arc::as_ptr(member), at)).collect();
        let classes = self.state().engine.classes.clone();
        for (&ids, entry) in &classes {
            for member in
                entry.members.iter().filter_map(Weak::upgrade).filter(|member| member.recheck_secrets(recheck))
            {
                match known.get(&Arc::as_ptr(&member)) {
                    Some(at) => affected.members[*at].1.insert(TypeUrl::Secret),
                    None => affected.add_member(ids, member, secret),
                }
            }
        }
    }

    /// The current mesh; `None` before the first load.
    pub fn mesh(&self) -> Option<Arc<Mesh>> {
        self.state().engine.mesh.clone()
    }

    /// Objects that could not be translated because of an internal error.
    pub fn translation_diagnostics(&self) -> Vec<Diagnostic> {
        self.state().engine.caches.failures.diagnostics()
    }

    /// A panic interrupted the effects of a refresh: streams may have been lost, and the process must be restarted. A panic before that leaves the
    /// previous engine in force.
    pub fn is_broken(&self) -> bool {
        self.state().committing
    }

    /// The number of resources and classes that each EnvoyFilter patch changed.
    pub fn patch_reach(&self) -> Vec<PatchReach> {
        let engine = self.state().engine.clone();
        let Some(mesh) = &engine.mesh else { return Vec::new() };
        let classes: Vec<_> = engine.classes.keys().map(|ids| engine.caches.layers(*ids)).collect();
        patch_reach::count_patch_reach(mesh, &classes)
    }

    /// The number of classes: distinct configurations.
    pub fn class_count(&self) -> usize {
        self.state().engine.classes.len()
    }

    /// Drops the classes that were unused at the previous sweep, too. To be called every few seconds.
    pub fn sweep_classes(&self) {
        let _building = lock(&self.building);
        self.state().sweep(HashSet::contains);
        self.drop_superseded();
    }

    /// A proxy without a stream, such as that of a Pod in a folder. It leaves when the membership is dropped.
    pub fn join_proxy(&self, proxy: Proxy) -> Result<Membership, NodeError> {
        self.join_with(proxy, &StreamOpener::nobody(), None)
    }

    fn join_with(
        &self,
        proxy: Proxy,
        opener: &StreamOpener,
        secrets: Option<Secrets>,
    ) -> Result<Membership, NodeError> {
        let (proxy, mut secrets) = (Arc::new(proxy), secrets);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let _refreshing = (attempt > MAX_ATTEMPTS).then(|| lock(&self.refreshing));
            let engine = self.state().engine.clone();
            let mesh = engine.mesh.as_ref().ok_or_else(not_loaded)?;
            let (keys, placement) = engine.place(mesh, &proxy);
            let (round, known) = (engine.round, engine.find_class(&keys));
            let joined = match known {
                Some(ids) => {
                    drop(engine);
                    self.state().join(ids, round, &proxy, opener, &mut secrets, &self.holds)
                }
                None => {
                    drop(engine);
                    let wanted = WantedClass { keys, placement, round, opener };
                    self.build_and_join(wanted, &proxy, &mut secrets)?
                }
            };
            if let Some(membership) = joined {
                return Ok(membership);
            }
        }
    }

    /// `None`: a refresh came between.
    fn build_and_join(
        &self,
        wanted: WantedClass<'_>,
        proxy: &Arc<Proxy>,
        secrets: &mut Option<Secrets>,
    ) -> Result<Option<Membership>, NodeError> {
        let WantedClass { keys, placement, round, opener } = wanted;
        let _building = lock(&self.building);
        let mut built = self.state().engine_with_room(&opener.client, self.class_limits)?;
        let Some(mesh) = built.mesh.clone().filter(|_| built.round == round) else { return Ok(None) };
        let ids = built.build_class(&mesh, &keys, placement);
        let mut state = self.state();
        if state.engine.round != round {
            return Ok(None);
        }
        state.engine.adopt_class(built, ids);
        state.class_counts.add(ids, &opener.client);
        state.built += 1;
        if state.built > MAX_UNUSED_CLASSES && state.built > state.engine.classes.len() / 2 {
            state.sweep(|_, unused| *unused != ids);
        }
        Ok(state.join(ids, round, proxy, opener, secrets, &self.holds))
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

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

// A panic during a refresh leaves the previous engine in force.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A class to be built.
struct WantedClass<'a> {
    keys: FingerprintedKeys,
    placement: Placement,
    /// Of the engine that it is not in.
    round: u64,
    opener: &'a StreamOpener,
}

impl State {
    /// The engine, if the client may have another class. Classes that nobody uses any more make room.
    fn engine_with_room(&mut self, client: &ClassClient, limits: ClassLimits) -> Result<Engine, NodeError> {
        let checked = self.class_counts.check(client, self.engine.classes.len(), limits);
        // Once for the classes built since the last sweep: a client that tries again and again costs no sweep each time.
        if checked.is_err() && self.built > 0 {
            self.sweep(|_, _| true);
            self.class_counts.check(client, self.engine.classes.len(), limits)?;
        } else {
            checked?;
        }
        Ok(self.engine.clone())
    }

    /// Drops unused classes that are `due`, given those that were unused before. A refresh that is in progress does so when it ends.
    fn sweep(&mut self, due: impl Fn(&HashSet<LayerIds>, &LayerIds) -> bool) {
        if self.joined.is_some() {
            return;
        }
        let (dropped, unused): (Vec<LayerIds>, Vec<LayerIds>) =
            self.engine.unused_classes().partition(|ids| due(&self.unused, ids));
        self.engine.drop_classes(&dropped);
        let classes = &self.engine.classes;
        self.class_counts.retain(|ids| classes.contains_key(ids));
        (self.unused, self.built) = (unused.into_iter().collect(), 0);
    }

    fn record(&mut self, seq: Seq, cause: &PushCause, before: LayerSnapshot, affected: &mut AffectedStreams) {
        let Some(records) = &mut self.records else { return };
        let after = self.engine.caches.snapshot();
        let (classes, moved) = (affected.classes().to_vec(), std::mem::take(&mut affected.moved));
        records.push(PushRecord { seq, at: SystemTime::now(), cause: cause.clone(), classes, moved, before, after });
    }

    /// Adds a stream to a class. `None`: a refresh came between.
    fn join(
        &mut self,
        ids: LayerIds,
        round: u64,
        proxy: &Arc<Proxy>,
        opener: &StreamOpener,
        secrets: &mut Option<Secrets>,
        holds: &SharedHolds,
    ) -> Option<Membership> {
        let Engine { seq, round: current, classes, .. } = &mut self.engine;
        let entry = classes.get_mut(&ids).filter(|_| *current == round)?;
        let notifier = Notifier::new(*seq);
        let member = Member::new(
            proxy.clone(),
            opener.clone(),
            entry.handle.clone(),
            notifier.clone(),
            secrets.take(),
            holds.clone(),
        );
        let member = Arc::new(member);
        entry.members.push_back(Arc::downgrade(&member));
        if let Some(joined) = &mut self.joined {
            joined.push(Arc::downgrade(&member));
        }
        if let Some(records) = &mut self.records {
            let layers = LayerKey::of_class(ids);
            records.joined.push(ClassMove { proxy: proxy.clone(), layers, since: *seq, overtaken: false });
        }
        Some(Membership { class: member, proxy: proxy_info(proxy), notifier })
    }
}

impl Provider for Views {
    fn ready(&self) -> bool {
        self.state().engine.mesh.is_some()
    }

    fn join(&self, node: &Node) -> Result<Membership, NodeError> {
        self.join_with(self.admit(None, node)?, &StreamOpener::nobody(), None)
    }

    fn join_as(
        &self,
        caller: Option<&Caller>,
        address: IpAddr,
        variant: Variant,
        node: &Node,
    ) -> Result<Membership, NodeError> {
        let proxy = self.admit(caller, node)?;
        let reader = caller.and_then(|caller| secret_reader(caller, &proxy, &self.env));
        let secrets =
            reader.zip(self.secret_cache.clone()).map(|(reader, cache)| Secrets::new(cache, reader, proxy.id.clone()));
        self.join_with(proxy, &StreamOpener { client: ClassClient::new(caller, address), variant }, secrets)
    }

    fn memory_bytes(&self) -> usize {
        /// The size of a table entry: a pointer to the resource and its sequence.
        const NAME: usize = 16;
        let Engine { caches, classes, .. } = self.state().engine.clone();
        let members: usize = classes.values().map(|entry| entry.members.len()).sum();
        caches.name_count() * NAME
            + classes.len() * (size_of::<ClassEntry>() + size_of::<View>())
            + members * size_of::<Member>()
    }

    fn release_caches(&self) {
        let engine = self.state().engine.clone();
        engine.caches.drop_templates();
        engine.classes.values().for_each(|entry| entry.view.evict_unused());
    }

    fn record_nack(&self, rejection: &NackReport<'_>) {
        self.report_nacks(rejection);
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

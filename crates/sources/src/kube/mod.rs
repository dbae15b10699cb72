//! A Kubernetes API server as a source of objects: one list and one watch for each kind, with the same updates as from a folder.
//! Invariant: an unreachable server or an unreadable response removes nothing.

mod client;
mod encoded_page;
mod gateway_api;
mod health;
mod known_objects;
mod names;
mod outage;
mod pacing;
mod page;
mod rate;
mod reflector;
mod resource;
mod scope;
mod watch_delay;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::object::UnreadObjects;
use config::store::{Name, Snapshot, Update};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at};
use tracing::info;

pub use self::client::{AccessError, ApiAccess, JSON, KubeClient, RequestError, error_response};
pub use self::health::{ReceivedEvents, State, WatchHealth, WatchesHealth};
use self::known_objects::KnownObjects;
pub use self::pacing::Pacing;
pub use self::rate::RateLimiter;
use self::reflector::{Audits, Progress, Reflector, spawn};
pub use self::resource::{ApiResource, object_path, plural};
pub use self::scope::NamespaceScope;
pub use self::watch_delay::{DELAY_BUCKETS, WatchDelays};

#[derive(Debug, Clone)]
pub struct KubeOptions {
    /// The namespace of the control plane.
    pub pod_namespace: Arc<str>,
    /// Only these, and the root namespace, with a watch for each. Empty: all, with one watch.
    pub namespaces: BTreeSet<Arc<str>>,
    pub endpoints: EndpointKind,
    /// Objects of Istio's kinds for another revision are ignored. Empty: none is.
    pub revision: Arc<str>,
    /// The name of the ConfigMap with the mesh config.
    pub mesh_config: Arc<str>,
    pub pacing: Pacing,
}

/// The kind that endpoints of services are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointKind {
    EndpointSlice,
    Endpoints,
}

pub struct KubeSource {
    client: KubeClient,
    options: KubeOptions,
    scope: watch::Sender<NamespaceScope>,
    audits: Arc<Audits>,
    health: WatchesHealth,
    out: mpsc::Sender<Vec<Update>>,
}

/// The interval of progress logs during the start.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Kinds that decide which objects of other kinds are in scope.
const SCOPING_KINDS: [Kind; 2] = [Kind::Namespace, Kind::ConfigMap];

impl KubeSource {
    pub fn new(client: KubeClient, options: KubeOptions, out: mpsc::Sender<Vec<Update>>) -> KubeSource {
        let audits = Audits::new(options.pacing.audit);
        KubeSource { client, options, scope: watch::Sender::default(), audits, health: WatchesHealth::default(), out }
    }

    pub fn health(&self) -> WatchesHealth {
        self.health.clone()
    }

    /// What is listed and watched, as far as it is known before the mesh config is.
    pub fn resources(&self) -> Vec<ApiResource> {
        let kinds = Kind::ALL.into_iter().filter(|kind| self.reads(*kind));
        let watched = |kind| {
            let namespaces = self.watched_namespaces(kind, None).into_iter();
            namespaces.map(move |namespace| ApiResource { kind, namespace })
        };
        kinds.flat_map(watched).collect()
    }

    /// The Gateway API's objects in the namespaces that are watched.
    pub async fn unread_objects(&self, snapshot: &Snapshot) -> UnreadObjects {
        gateway_api::unread_objects(&self.client, &self.watched_namespaces(Kind::Gateway, Some(snapshot))).await
    }

    /// To be updated with the namespaces in scope.
    pub fn scope(&self) -> watch::Sender<NamespaceScope> {
        self.scope.clone()
    }

    /// Starts the watches, and returns when every kind was listed once, however long that takes. Updates are applied as they arrive.
    pub async fn first(
        &self,
        source: &mut mpsc::Receiver<Vec<Update>>,
        mut apply: impl FnMut(Vec<Update>) -> Arc<Snapshot>,
    ) {
        let mut snapshot = apply(Vec::new());
        self.begin(&SCOPING_KINDS, &snapshot);
        self.apply_until_synced(source, |updates| snapshot = apply(updates)).await;
        self.scope.send_replace(NamespaceScope::new(&snapshot));
        let others = Kind::ALL.into_iter().filter(|kind| !SCOPING_KINDS.contains(kind) && self.reads(*kind));
        self.begin(&others.collect::<Vec<_>>(), &snapshot);
        self.apply_until_synced(source, |updates| snapshot = apply(updates)).await;
    }

    fn begin(&self, kinds: &[Kind], snapshot: &Snapshot) {
        for kind in kinds {
            for namespace in self.watched_namespaces(*kind, Some(snapshot)) {
                let resource = ApiResource { kind: *kind, namespace };
                spawn(Reflector {
                    client: self.client.clone(),
                    health: self.health.begin(&resource),
                    pacing: self.options.pacing,
                    audits: self.audits.clone(),
                    scope: self.scope.subscribe(),
                    always: Name {
                        namespace: self.options.pod_namespace.clone(),
                        name: self.options.mesh_config.clone(),
                    },
                    revision: self.options.revision.clone(),
                    optional: self.is_optional(*kind),
                    out: self.out.clone(),
                    known: KnownObjects::new(*kind),
                    progress: Progress::default(),
                    resource,
                });
            }
        }
    }

    /// The namespaces to watch one by one. `None`: all at once. `snapshot`: with the mesh config, which names the root namespace.
    fn watched_namespaces(&self, kind: Kind, snapshot: Option<&Snapshot>) -> Vec<Option<Arc<str>>> {
        if self.options.namespaces.is_empty() || !kind.is_namespaced() {
            return vec![None];
        }
        let mut names = self.options.namespaces.clone();
        names.extend(snapshot.map(|snapshot| Arc::from(snapshot.mesh.root_namespace.as_str())));
        names.insert(self.options.pod_namespace.clone());
        names.into_iter().map(Some).collect()
    }

    fn reads(&self, kind: Kind) -> bool {
        match kind {
            Kind::EndpointSlice => self.options.endpoints == EndpointKind::EndpointSlice,
            Kind::Endpoints => self.options.endpoints == EndpointKind::Endpoints,
            // Only its name is used, which pods have too.
            Kind::ServiceAccount => false,
            _ => true,
        }
    }

    /// Kinds that are optional: without the right to read them a feature is missing, but nothing else is weakened. Namespaced roles
    /// cannot grant cluster-scoped kinds.
    fn is_optional(&self, kind: Kind) -> bool {
        let confined = !self.options.namespaces.is_empty();
        matches!(kind, Kind::Secret | Kind::Node | Kind::Ingress | Kind::IngressClass)
            || (confined && !kind.is_namespaced())
    }

    async fn apply_until_synced(&self, source: &mut mpsc::Receiver<Vec<Update>>, mut take: impl FnMut(Vec<Update>)) {
        let mut progress = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        loop {
            tokio::select! {
                _ = progress.tick() => self.log_progress(),
                updates = source.recv() => match updates {
                    Some(updates) => take(updates),
                    None => return,
                },
                () = self.health.synced() => break,
            }
        }
        // A watch sends its list before it counts as synced.
        while let Ok(updates) = source.try_recv() {
            take(updates);
        }
    }

    fn log_progress(&self) {
        let watches = self.health.snapshot();
        let waiting = watches.iter().filter(|(_, health)| !health.synced);
        let waiting: Vec<String> = waiting.map(|(resource, _)| resource.to_string()).collect();
        info!(
            read = watches.len() - waiting.len(),
            waiting = waiting.join(", "),
            "waiting for the initial lists of the API server"
        );
    }
}

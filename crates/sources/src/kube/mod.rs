//! A Kubernetes API server as a source of objects: one list and one watch for each kind, and what they bring is handed over as a folder's
//! objects are. Law: what cannot be reached or read removes nothing.

mod client;
mod health;
mod held;
mod names;
mod pacing;
mod page;
mod rate;
mod reflector;
mod resource;
mod scope;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::kind::Kind;
use config::store::{Name, Snapshot, Update};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at};
use tracing::info;

pub use self::client::{Access, AccessError, Client, Failure, JSON, refused};
pub use self::health::{Health, State, WatchHealth};
use self::held::Held;
pub use self::pacing::Pacing;
pub use self::rate::RateLimiter;
use self::reflector::{Audits, Progress, Reflector, spawn};
pub use self::resource::{Resource, object_path, plural};
pub use self::scope::Scope;

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the control plane runs.
    pub pod_namespace: Arc<str>,
    /// Only these, and the root namespace, with a watch for each. Empty: all, with one watch.
    pub namespaces: BTreeSet<Arc<str>>,
    pub endpoints: EndpointKind,
    /// Objects of Istio's kinds that name another revision are not read. Empty: all are.
    pub revision: Arc<str>,
    /// The ConfigMap of the mesh config.
    pub mesh_config: Arc<str>,
    pub pacing: Pacing,
}

/// Which kind tells where a service's endpoints are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointKind {
    EndpointSlice,
    Endpoints,
}

pub struct Cluster {
    client: Client,
    options: Options,
    scope: watch::Sender<Scope>,
    audits: Arc<Audits>,
    health: Health,
    out: mpsc::Sender<Vec<Update>>,
}

/// How often it is told what a start waits for.
const PROGRESS: Duration = Duration::from_secs(5);

/// What decides which objects of the other kinds matter.
const FRAME: [Kind; 2] = [Kind::Namespace, Kind::ConfigMap];

impl Cluster {
    pub fn new(client: Client, options: Options, out: mpsc::Sender<Vec<Update>>) -> Cluster {
        let audits = Audits::new(options.pacing.audit);
        Cluster { client, options, scope: watch::Sender::default(), audits, health: Health::default(), out }
    }

    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Told which namespaces matter, as that changes.
    pub fn scope(&self) -> watch::Sender<Scope> {
        self.scope.clone()
    }

    /// Begins to watch, and returns when every kind was listed once; takes as long as it must. What comes is applied as it comes.
    pub async fn first(
        &self,
        source: &mut mpsc::Receiver<Vec<Update>>,
        mut apply: impl FnMut(Vec<Update>) -> Arc<Snapshot>,
    ) {
        let mut snapshot = apply(Vec::new());
        self.begin(&FRAME, &snapshot);
        self.gather(source, |updates| snapshot = apply(updates)).await;
        self.scope.send_replace(Scope::new(&snapshot));
        let others = Kind::ALL.into_iter().filter(|kind| !FRAME.contains(kind) && self.reads(*kind));
        self.begin(&others.collect::<Vec<_>>(), &snapshot);
        self.gather(source, |updates| snapshot = apply(updates)).await;
    }

    fn begin(&self, kinds: &[Kind], snapshot: &Snapshot) {
        for kind in kinds {
            for namespace in self.places(*kind, snapshot) {
                let resource = Resource { kind: *kind, namespace };
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
                    dispensable: self.is_dispensable(*kind),
                    out: self.out.clone(),
                    held: Held::new(*kind),
                    progress: Progress::default(),
                    resource,
                });
            }
        }
    }

    /// The namespaces to watch one by one. `None`: all at once.
    fn places(&self, kind: Kind, snapshot: &Snapshot) -> Vec<Option<Arc<str>>> {
        if self.options.namespaces.is_empty() || !kind.is_namespaced() {
            return vec![None];
        }
        let mut names = self.options.namespaces.clone();
        names.insert(snapshot.mesh.root_namespace.as_str().into());
        names.insert(self.options.pod_namespace.clone());
        names.into_iter().map(Some).collect()
    }

    fn reads(&self, kind: Kind) -> bool {
        match kind {
            Kind::EndpointSlice => self.options.endpoints == EndpointKind::EndpointSlice,
            Kind::Endpoints => self.options.endpoints == EndpointKind::Endpoints,
            // Nothing is read of it but its name, which pods have too.
            Kind::ServiceAccount => false,
            _ => true,
        }
    }

    /// Kinds whose absence for want of a right takes a feature away and weakens nothing else. With a role of single namespaces, kinds
    /// without a namespace cannot be had.
    fn is_dispensable(&self, kind: Kind) -> bool {
        let confined = !self.options.namespaces.is_empty();
        matches!(kind, Kind::Secret | Kind::Node | Kind::Ingress | Kind::IngressClass)
            || (confined && !kind.is_namespaced())
    }

    async fn gather(&self, source: &mut mpsc::Receiver<Vec<Update>>, mut take: impl FnMut(Vec<Update>)) {
        let mut progress = interval_at(Instant::now() + PROGRESS, PROGRESS);
        loop {
            tokio::select! {
                _ = progress.tick() => self.tell_progress(),
                updates = source.recv() => match updates {
                    Some(updates) => take(updates),
                    None => return,
                },
                () = self.health.synced() => break,
            }
        }
        // A watch hands over its list before it counts as synced.
        while let Ok(updates) = source.try_recv() {
            take(updates);
        }
    }

    fn tell_progress(&self) {
        let watches = self.health.snapshot();
        let waiting = watches.iter().filter(|(_, health)| !health.synced);
        let waiting: Vec<String> = waiting.map(|(resource, _)| resource.to_string()).collect();
        info!(read = watches.len() - waiting.len(), waiting = waiting.join(", "), "still reading the API server");
    }
}

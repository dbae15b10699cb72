//! The phases after the first load: ports that need the mesh, tasks of replicas and of the leader, the authenticator. The secure port itself
//! is opened in `secure_port`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use config::store::Update;
use sources::files::Folder;
use sources::jwks::JwksFetcher;
use tokio::sync::mpsc;
use tracing::warn;
use views::Views;

use crate::authentication::{CallerAuthenticator, WorkloadRegistry};
use crate::banner::{Found, Origin};
use crate::grpc_ports::GrpcPorts;
use crate::leader_tasks::{self, Assess, LeaderTasks};
use crate::object_source::FirstLoad;
use crate::pipeline::{self, Pipeline};
use crate::ports::Listeners;
use crate::replicas::{ReplicaAddresses, ReplicaBalancer};
use crate::running::BackgroundTasks;
use crate::settings::{DebounceSettings, IdentitySettings, MeshSettings, PortSettings, WebhookSettings};
use crate::state::SharedState;
use crate::{object_status, secure_port};

/// What the phases before and after the first load share.
pub(crate) struct ServerParts {
    pub(crate) started: Instant,
    pub(crate) mesh: MeshSettings,
    pub(crate) ports: PortSettings,
    pub(crate) debounce: DebounceSettings,
    pub(crate) identity: IdentitySettings,
    pub(crate) webhook: WebhookSettings,
    /// How long content that proxies reject is held back. `None`: it is not.
    pub(crate) quarantine: Option<Duration>,
    pub(crate) views: Arc<Views>,
    pub(crate) state: Arc<SharedState>,
    pub(crate) listeners: Listeners,
    pub(crate) grpc: GrpcPorts,
    pub(crate) updates: (mpsc::Sender<Vec<Update>>, mpsc::Receiver<Vec<Update>>),
}

/// A server that has read every object once and serves them; not every port is open.
pub struct LoadedServer {
    pub(crate) parts: ServerParts,
    /// `None`: the source sends its changes by itself.
    pub(crate) folder: Option<Folder>,
    /// `None`: there is no cluster. Taken when the secure port is open.
    pub(crate) leader_tasks: Option<LeaderTasks>,
    pub(crate) revision: String,
    pub(crate) origin: Origin,
    pub(crate) found: Found,
    pub(crate) pipeline: Pipeline,
    pub(crate) keys: JwksFetcher,
    pub(crate) tasks: BackgroundTasks,
    /// `None`: not made yet, or the secure port is off.
    pub(crate) authenticator: Option<Arc<CallerAuthenticator>>,
    /// The folder of the root in a cluster.
    pub(crate) root_folder: Option<PathBuf>,
}

impl LoadedServer {
    pub(crate) fn new(parts: ServerParts, first: FirstLoad, keys: JwksFetcher) -> LoadedServer {
        let FirstLoad { folder, mut leader_tasks, origin, found, pipeline } = first;
        if let Some(tasks) = &mut leader_tasks {
            tasks.injects = parts.state.injection.is_some();
        }
        let revision = leader_tasks.as_ref().map_or("", |tasks| tasks.revision()).to_owned();
        LoadedServer {
            parts,
            folder,
            leader_tasks,
            revision,
            origin,
            found,
            pipeline,
            keys,
            tasks: BackgroundTasks::default(),
            authenticator: None,
            root_folder: None,
        }
    }

    /// The key sets that policies name, so that the first pushes hold them. Waits no longer than a fetch may take.
    pub async fn fetch_jwks(&mut self) {
        let updates = self.keys.first().await;
        if self.pipeline.apply_batch(updates, Duration::ZERO).await.is_err() {
            warn!("keys were fetched, and are applied with the next change");
        }
    }

    /// The secure gRPC port and the webhook's.
    pub async fn bind_secure_ports(&mut self) -> Result<()> {
        let ServerParts { ports, listeners, .. } = &mut self.parts;
        listeners.bind_secure(ports).await?;
        listeners.bind_webhook(ports, self.leader_tasks.is_some()).await
    }

    /// The names of the serving certificate.
    pub fn hosts(&self) -> Vec<String> {
        let ServerParts { mesh, identity, .. } = &self.parts;
        secure_port::hosts(&mesh.pod_namespace, &self.revision, &identity.hosts)
    }

    pub fn mesh_settings(&self) -> &MeshSettings {
        &self.parts.mesh
    }

    pub fn root_namespace(&self) -> String {
        self.pipeline.root_namespace()
    }

    /// XDS_AUTH.
    pub fn authenticates(&self) -> bool {
        self.parts.identity.authenticate
    }

    /// Reports to the other replicas and balances streams with them; competes for leadership and does the leader's work. Nothing without
    /// a cluster.
    pub fn start_cluster_tasks(&mut self) {
        let Some(leader_tasks) = &self.leader_tasks else { return };
        let state = &self.parts.state;
        let replicas = Arc::new(leader_tasks.replicas());
        if let Some(health) = state.watches.clone() {
            let balancer = Arc::new(ReplicaBalancer {
                replicas: replicas.clone(),
                health,
                connections: state.connections.clone(),
                balances: leader_tasks.balances,
                differences: Mutex::default(),
                addresses: self.replica_addresses(leader_tasks),
            });
            // Set nowhere else.
            let _ = state.replicas.set(balancer.clone());
            self.tasks.replicas = Some((tokio::spawn(balancer.clone().follow()), balancer));
        }
        let (views, connections) = (self.parts.views.clone(), state.connections.clone());
        let changed = connections.clone();
        let assess: Assess = Arc::new(move |objects| {
            object_status::statuses(objects, pipeline::diagnostics(objects, &views), &connections)
        });
        let assess = (assess, Arc::new(move || changed.changes()) as Arc<_>);
        let (handles, leads) = leader_tasks.start(self.pipeline.published_objects(), assess, replicas);
        // Set nowhere else.
        let _ = state.leases.set(handles.held.clone());
        self.tasks.leader = Some((handles, leads));
    }

    /// The address of the pod: a port may listen on every one.
    fn replica_addresses(&self, leader_tasks: &LeaderTasks) -> ReplicaAddresses {
        let ip = leader_tasks.address(self.parts.state.metrics.objects.snapshot().as_deref());
        let of = |flag: &str| {
            let found = self.parts.listeners.open.iter().find(|open| open.flag == flag);
            let address = ip.zip(found).map(|(ip, open)| SocketAddr::new(ip, open.address.port()));
            address.map(|address| address.to_string()).unwrap_or_default()
        };
        ReplicaAddresses { secure: of("--secureGRPCAddr"), monitoring: of("--monitoringAddr") }
    }

    /// Makes the authenticator of the secure port. `None`: the port is off.
    pub fn authenticator(&mut self) -> Result<Option<Arc<dyn xds::Authenticator>>> {
        let ServerParts { identity, state, listeners, .. } = &mut self.parts;
        if listeners.secure.is_none() {
            return Ok(None);
        }
        self.root_folder = self.leader_tasks.as_ref().map(|_| leader_tasks::root_folder(identity)).transpose()?;
        let registry = WorkloadRegistry { objects: state.metrics.objects.clone() };
        let metrics = ca::CaMetrics::new(state.metrics.registry()).context("cannot register the metrics of the CA")?;
        let reviews = self.leader_tasks.as_ref().map(|tasks| tasks.token_reviews(&identity.audiences));
        let authenticator = CallerAuthenticator::new(identity, registry, metrics, reviews)?;
        self.authenticator = Some(authenticator.clone());
        Ok(Some(authenticator))
    }
}

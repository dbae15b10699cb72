//! The first phases of a server: the source is opened, ports are bound, streams are answered UNAVAILABLE until the first load.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Result;
use config::store::Update;
use controllers::SecretAccess;
use tokio::sync::mpsc;
use views::Views;
use xds::PortListener;

use crate::gateway_credentials::{GatewayCredentials, SecretPolicy};
use crate::grpc_ports::GrpcPorts;
use crate::history_recorder::HistoryRecorder;
use crate::injection::InjectionService;
use crate::leader_tasks::LeaderTasks;
use crate::loaded::{LoadedServer, ServerParts};
use crate::metrics::Metrics;
use crate::object_source::ObjectSource;
use crate::ports::Listeners;
use crate::settings::{JwksSettings, MeshSettings, ServerSettings, SourceSettings};
use crate::state::SharedState;
use crate::{class_sweep, jwks, memory_pressure, open_files};

/// Batches of updates that the source may be ahead of the pipeline.
const QUEUED_UPDATES: usize = 16;

/// A server whose source has not been loaded. Plaintext streams may arrive already: they get UNAVAILABLE.
pub struct StartingServer {
    source: ObjectSource,
    credentials: Arc<GatewayCredentials>,
    jwks: JwksSettings,
    parts: ServerParts,
}

impl StartingServer {
    /// Opens the source and binds the ports that need no mesh. A folder is loaded before the ports are bound; with an API server, streams
    /// get UNAVAILABLE until the first load.
    pub async fn open(settings: ServerSettings, metrics: Arc<Metrics>) -> Result<StartingServer> {
        let started = Instant::now();
        let ServerSettings {
            source,
            mesh,
            ports,
            debounce,
            streams,
            classes,
            identity,
            jwks,
            webhook,
            injection,
            quarantine,
            memory_limit,
            history,
        } = settings;
        let (max_connections, bisect_nacks) = (open_files::max_connections(), quarantine.is_some());
        let streams = xds::Options { max_connections, bisect_nacks, ..streams };
        let mesh = MeshSettings { mesh_config: mesh.mesh_config.or_else(mounted_mesh_config), ..mesh };
        let secret_policy = match &source {
            SourceSettings::Folder(_) => SecretPolicy::AllowAll,
            SourceSettings::Cluster(settings) => {
                SecretPolicy::AccessReview { access: OnceLock::new(), cache_ttl: settings.access_cache_ttl }
            }
        };
        let credentials = Arc::new(GatewayCredentials { metrics: metrics.clone(), secret_policy });
        let views = Views::with_secrets(mesh.environment(), classes, credentials.clone());
        let history = HistoryRecorder::new(&views, history, &metrics)?;
        let (sender, receiver) = mpsc::channel::<Vec<Update>>(QUEUED_UPDATES);
        let source = ObjectSource::open(source, &mesh, &views, &metrics, sender.clone()).await?;
        let listeners = Listeners::bind(&ports, &metrics).await?;
        let injection = injection.map(|plane| {
            let (objects, metrics) = (metrics.objects.clone(), metrics.injection.clone());
            Arc::new(InjectionService::new(plane, &mesh.pod_namespace, objects, metrics))
        });
        let state = SharedState::new(&views, &mesh, metrics.clone(), source.watches(), injection, history.clone());
        let server = xds::Server::new(views.clone(), streams, metrics.streams.clone(), state.connections.clone());
        tokio::spawn(memory_pressure::follow(server.clone(), memory_limit));
        tokio::spawn(class_sweep::follow(views.clone()));
        if let Some(history) = history {
            tokio::spawn(history.follow());
        }
        let parts = ServerParts {
            started,
            mesh,
            ports,
            debounce,
            identity,
            webhook,
            quarantine,
            views,
            state,
            listeners,
            grpc: GrpcPorts::new(server),
            updates: (sender, receiver),
        };
        Ok(StartingServer { source, credentials, jwks, parts })
    }

    pub fn state(&self) -> &Arc<SharedState> {
        &self.parts.state
    }

    /// The listener of --httpAddr. `None`: the port is off.
    pub fn take_http_listener(&mut self) -> Option<PortListener> {
        self.parts.listeners.http.take()
    }

    /// The injection webhook for the port of --httpAddr. `None`: it has a port of its own, --httpsAddr, or is off.
    pub fn injection_routes(&self) -> Option<axum::Router> {
        let ServerParts { ports, state, .. } = &self.parts;
        let service = state.injection.clone().filter(|_| ports.https.address.is_none())?;
        Some(crate::webhook::injection_routes(service))
    }

    /// The listener of --monitoringAddr. `None`: the port is off.
    pub fn take_monitoring_listener(&mut self) -> Option<PortListener> {
        self.parts.listeners.monitoring.take()
    }

    pub fn serve_plaintext(&mut self) {
        if let Some(listener) = self.parts.listeners.grpc.take() {
            self.parts.grpc.serve(listener, xds::ServerPort::default());
        }
    }

    /// Returns when every object has been read once and proxies can be served, however long that takes.
    pub async fn load(self) -> Result<LoadedServer> {
        let StartingServer { source, credentials, jwks, mut parts } = self;
        source.report_missing_rights(parts.listeners.secure.is_some());
        let first = source.load(&mut parts.updates.1).await?;
        if let Some(tasks) = &first.leader_tasks {
            review_access(&credentials, tasks, &parts.views);
        }
        let pipeline = &first.pipeline;
        let keys = jwks::source(jwks, pipeline.wanted_keys(), pipeline.objects(), &parts.state.metrics)?;
        Ok(LoadedServer::new(parts, first, keys))
    }
}

/// Who may read the Secrets of gateways is asked of the API server from now on.
fn review_access(credentials: &GatewayCredentials, tasks: &LeaderTasks, views: &Arc<Views>) {
    if let SecretPolicy::AccessReview { access, cache_ttl } = &credentials.secret_policy {
        let views = views.clone();
        // Set nowhere else.
        let _ = access.set(SecretAccess::new(&tasks.client, *cache_ttl, move || views.recheck_secrets()));
    }
}

/// istiod's default of --meshConfig, relative as there: the chart mounts it in the image.
fn mounted_mesh_config() -> Option<PathBuf> {
    Some(PathBuf::from("./etc/istio/config/mesh")).filter(|file| file.exists())
}

//! What a running server shares with the pages and actions of the crate `admin`.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use sources::kube::WatchesHealth;
use views::Views;

use crate::history_recorder::HistoryRecorder;
use crate::injection::InjectionService;
use crate::metrics::Metrics;
use crate::planner::Planner;
use crate::replicas::ReplicaBalancer;
use crate::root_rotation::{CertificateAges, RootRotation};
use crate::settings::MeshSettings;

/// What a client needs to trust the secure ports of all replicas.
pub struct ReplicaAccess {
    /// A name in all their certificates.
    pub server_name: String,
    /// The roots of the mesh as PEM, at the time of the call.
    pub roots: Box<dyn Fn() -> String + Send + Sync>,
}

pub struct SharedState {
    pub provider: Arc<dyn xds::Provider>,
    /// `None`: there is no mesh, as in tests of pages.
    pub views: Option<Arc<Views>>,
    /// `None`: there is no mesh, as in tests of pages.
    pub planner: Option<Arc<Planner>>,
    /// `None`: no history is kept.
    pub history: Option<Arc<HistoryRecorder>>,
    pub connections: Arc<xds::Connections>,
    pub metrics: Arc<Metrics>,
    /// `None`: no API server is watched.
    pub watches: Option<WatchesHealth>,
    /// Not set: the secure port is off, or its CA is plugged in or external.
    pub rotation: OnceLock<Arc<RootRotation>>,
    /// Not set: there is no cluster, and so there are no other replicas.
    pub replicas: OnceLock<Arc<ReplicaBalancer>>,
    /// Not set: the secure port is off.
    pub replica_access: OnceLock<ReplicaAccess>,
    /// The type of the key that signs workload certificates, at the time of the call. Not set: this server signs none.
    pub signing_key: OnceLock<Box<dyn Fn() -> String + Send + Sync>>,
    /// Not set: this server signs none.
    pub certificate_ages: OnceLock<Arc<CertificateAges>>,
    /// The Leases that this replica competes for, by name, and whether it holds them. Not set: there is no cluster.
    pub leases: OnceLock<Vec<(String, Arc<AtomicBool>)>>,
    /// `None`: pods are not injected.
    pub injection: Option<Arc<InjectionService>>,
    /// Set once, when the process shuts down.
    pub draining: AtomicBool,
    /// Every port is open, and the signer is known.
    pub ports_open: AtomicBool,
}

impl SharedState {
    pub(crate) fn new(
        views: &Arc<Views>,
        mesh: &MeshSettings,
        metrics: Arc<Metrics>,
        watches: Option<WatchesHealth>,
        injection: Option<Arc<InjectionService>>,
        history: Option<Arc<HistoryRecorder>>,
    ) -> Arc<SharedState> {
        Arc::new(SharedState {
            provider: views.clone(),
            views: Some(views.clone()),
            planner: Some(Arc::new(Planner::new(views.clone(), mesh.clone()))),
            history,
            connections: xds::Connections::new(),
            metrics,
            watches,
            rotation: OnceLock::new(),
            replicas: OnceLock::new(),
            replica_access: OnceLock::new(),
            signing_key: OnceLock::new(),
            certificate_ages: OnceLock::new(),
            leases: OnceLock::new(),
            injection,
            draining: AtomicBool::new(false),
            ports_open: AtomicBool::new(false),
        })
    }
}

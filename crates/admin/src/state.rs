//! What the pages and actions read: the shared state of the server, access control, and the permit that bounds their CPU time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Instant, SystemTime};

use anyhow::Result;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use server::SharedState;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tracing::error;
use xds::Authenticator;

use crate::access::{Access, AccessControl};
use crate::authorization::{AdminAuthorizer, AdminRequest};
use crate::console::{self, ConvergenceHistory, Hub};
use crate::debug_pages::{self, PageRequest};
use crate::doctor::collect;
use crate::doctor::facts::{EffectiveSettings, Facts};
use crate::doctor::history::{self, SampleHistory};
use crate::hosts::OwnHosts;
use crate::http::Peer;
use crate::metrics::Exporter;
use crate::page::Page;
use crate::registry::MeshState;
use crate::scope::observed_use::ObservedCalls;
use crate::settings::AdminSettings;

pub struct AdminState {
    pub(crate) server: Arc<SharedState>,
    pub(crate) exporter: Exporter,
    pub(crate) metrics_on_loopback_only: bool,
    /// Not set: the first load is not complete.
    pub(crate) access_control: OnceLock<AccessControl>,
    /// For `meltemi doctor`.
    pub(crate) effective: EffectiveSettings,
    /// The metrics of the last minutes, for the same.
    pub(crate) samples: SampleHistory,
    /// Pages that are computed at a time: they share the CPUs with pushes.
    pub(crate) page_permits: Semaphore,
    /// Likewise for metrics, which anybody may ask for: they wait for no page, and no page for them.
    pub(crate) metrics_permits: Semaphore,
    /// The last `syncz` page of a large mesh, and when it was computed.
    pub(crate) syncz: Mutex<Option<(Instant, Page)>>,
    /// What the listeners of the console share.
    pub(crate) console: Hub,
    pub(crate) convergence: ConvergenceHistory,
}

/// Pages use one CPU at most, however many are requested.
pub(crate) const PAGES_AT_A_TIME: usize = 1;

impl AdminState {
    pub fn new(
        server: Arc<SharedState>,
        exporter: Exporter,
        settings: &AdminSettings,
        effective: EffectiveSettings,
    ) -> Result<Arc<AdminState>> {
        if let Some(health) = &server.watches {
            exporter.register_cluster(health, &server)?;
        }
        Ok(Arc::new(AdminState {
            server,
            exporter,
            metrics_on_loopback_only: settings.metrics_on_loopback_only,
            access_control: OnceLock::new(),
            effective,
            samples: SampleHistory::default(),
            page_permits: Semaphore::new(PAGES_AT_A_TIME),
            metrics_permits: Semaphore::new(PAGES_AT_A_TIME),
            syncz: Mutex::default(),
            console: Hub::default(),
            convergence: ConvergenceHistory::default(),
        }))
    }

    /// Called once, when the mesh and the authenticator are known. `trusted`: namespaces whose callers see everything, besides those of the
    /// settings. `authenticator`: `None` if the secure port is off; used for pages only if `authenticates`.
    pub fn set_access(
        &self,
        settings: &AdminSettings,
        (hosts, domain): (&[String], &str),
        trusted: [String; 2],
        (authenticator, authenticates): (Option<Arc<dyn Authenticator>>, bool),
    ) {
        let admin = AdminAuthorizer::new(settings, OwnHosts::new(hosts, domain), authenticator.clone());
        let authenticator = authenticator.filter(|_| authenticates);
        let _ = self.access_control.set(AccessControl::new(settings, trusted, authenticator, admin));
    }

    /// What an HTTP caller may see, or the response that rejects the request.
    pub(crate) async fn access(&self, peer: Peer, uri: &Uri, headers: &HeaderMap) -> Result<Access, Page> {
        match self.access_control.get() {
            Some(control) => control.http(peer, uri, headers).await,
            None if peer.is_loopback() => Ok(Access::All),
            None => Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")),
        }
    }

    /// Records how fast pushes converge, until the task is dropped.
    pub async fn record_convergence(self: Arc<Self>) {
        let mut columns = tokio::time::interval(console::COLUMN);
        loop {
            columns.tick().await;
            self.convergence.record(SystemTime::now(), self.server.metrics.streams.convergence());
        }
    }

    pub(crate) fn mesh_state(&self) -> MeshState {
        MeshState {
            objects: self.server.metrics.objects.snapshot(),
            mesh: self.server.views.as_ref().and_then(|views| views.mesh()),
        }
    }

    /// What doctor's checks read of the mesh. `None`: the first load is not complete.
    pub(crate) fn facts(&self, observed: &ObservedCalls, namespace: Option<&str>) -> Option<Facts> {
        let MeshState { objects: Some(objects), mesh: Some(mesh) } = self.mesh_state() else { return None };
        let connections = self.server.connections.snapshot();
        let holds = self.server.views.as_ref().map(|views| views.holds_in_force()).unwrap_or_default();
        let facts = collect::facts(&self.effective, (&objects, &mesh), &connections, &holds, observed, namespace);
        let signing_key = self.server.signing_key.get().map(|key| key()).unwrap_or_default();
        Some(Facts { signing_key, ..facts })
    }

    pub(crate) fn patch_reach(&self) -> Vec<views::PatchReach> {
        self.server.views.as_ref().map(|views| views.patch_reach()).unwrap_or_default()
    }

    /// The service account that may change something, or the response that rejects the request.
    pub(crate) async fn authorize(&self, request: &AdminRequest<'_>, method: &Method) -> Result<String, Page> {
        match self.access_control.get() {
            Some(control) => control.admin.authorize(request, method).await,
            None => Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")),
        }
    }

    /// On a blocking thread, once it has a permit. `None`: it could not be made, which was logged.
    pub(crate) async fn metrics_page(self: Arc<Self>) -> Option<String> {
        let _permit = self.metrics_permits.acquire().await.ok()?;
        let state = self.clone();
        let computed = tokio::task::spawn_blocking(move || {
            state.exporter.set_patches(&state.patch_reach());
            state.exporter.page()
        });
        match computed.await {
            Ok(Ok(page)) => Some(page),
            Ok(Err(error)) => {
                error!(%error, "cannot encode the metrics");
                None
            }
            Err(error) => {
                error!(%error, "cannot compute the metrics");
                None
            }
        }
    }

    /// Keeps the metrics of the last minutes, as long as the server runs.
    pub async fn keep_samples(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(history::INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(page) = self.clone().metrics_page().await {
                self.samples.add(&page, Instant::now());
            }
        }
    }

    pub(crate) async fn page(
        self: Arc<Self>,
        name: String,
        method: Method,
        parameters: HashMap<String, String>,
        access: Access,
    ) -> Page {
        self.compute(move |state| {
            let request = PageRequest { name: &name, method: &method, parameters: &parameters, access: &access };
            debug_pages::answer(state, &request)
        })
        .await
    }

    /// Computes a page on a blocking thread, once it has a permit.
    pub(crate) async fn compute(self: Arc<Self>, page: impl FnOnce(&AdminState) -> Page + Send + 'static) -> Page {
        let Ok(_permit) = self.page_permits.acquire().await else {
            return Page::text(StatusCode::SERVICE_UNAVAILABLE, "closing\n");
        };
        let state = self.clone();
        let computed = tokio::task::spawn_blocking(move || page(&state));
        computed.await.unwrap_or_else(|error| {
            error!(%error, "cannot compute a page");
            Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made; the log says why\n")
        })
    }
}

//! What operators see: readiness, metrics, version and debug pages; and what they may do to a running server.

mod access;
mod actions;
mod admin;
pub(crate) mod census;
mod config_dump;
mod connections;
mod envoy_filters;
mod hosts;
pub(crate) mod http;
mod inspect;
pub(crate) mod memory;
pub(crate) mod metrics;
mod page;
mod pages;
pub(crate) mod process;
pub(crate) mod pushes;
mod registry;
pub(crate) mod scopes;
pub(crate) mod status;
pub(crate) mod watches;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use sources::kube::Health;
use tokio::sync::Semaphore;
use tracing::error;
use views::Views;

use crate::doctor::facts::Chosen;
use crate::serve::{Balance, Rotation};
use crate::version;
pub(crate) use access::{Access, Guard};
use actions::Action;
use admin::Sent;
pub(crate) use admin::{Admin, CONFIRMED, HEADER};
pub(crate) use hosts::Hosts;
use http::{Local, Peer};
pub(crate) use inspect::Inspector;
use metrics::Metrics;
use page::Page;
use pages::Asked;
use registry::World;
pub(crate) use registry::placed;

/// What the pages show.
pub(crate) struct Ops {
    pub(crate) provider: Arc<dyn xds::Provider>,
    /// `None`: there is no mesh to look at.
    pub(crate) views: Option<Arc<Views>>,
    pub(crate) connections: Arc<xds::Connections>,
    pub(crate) metrics: Arc<Metrics>,
    /// `None`: no API server is watched.
    pub(crate) watches: Option<Health>,
    /// How far the patches of EnvoyFilters reach, counted anew each time.
    pub(crate) patches: Box<dyn Fn() -> Vec<views::PatchReach> + Send + Sync>,
    pub(crate) metrics_on_loopback_only: bool,
    /// How roots are changed. Not set: there is no authority of ours on the secure port.
    pub(crate) rotation: OnceLock<Arc<Rotation>>,
    /// Not set: there is no cluster, and so there are no others.
    pub(crate) replicas: OnceLock<Arc<Balance>>,
    /// Not set: the first load is not complete.
    pub(crate) guard: OnceLock<Guard>,
    /// For whoever looks for causes.
    pub(crate) chosen: Chosen,
    /// Set once, when the process is told to end.
    pub(crate) draining: AtomicBool,
    /// Every port is open, and who signs is known.
    pub(crate) open: AtomicBool,
    /// Pages that are made at a time: they share the processors with pushes.
    pub(crate) turns: Semaphore,
    /// The last page of a large mesh, and when it was made.
    pub(crate) syncz: Mutex<Option<(Instant, Page)>>,
}

/// One page keeps a processor busy at the most, whoever asks how often.
pub(crate) const TURNS: usize = 1;

type Shared = State<Arc<Ops>>;
type Parameters = Query<HashMap<String, String>>;

impl Ops {
    fn world(&self) -> World {
        World { objects: self.metrics.objects.current(), mesh: self.views.as_ref().and_then(|views| views.mesh()) }
    }

    /// The service account that may change something, or the answer that refuses it.
    async fn authorize(&self, sent: &Sent<'_>, method: &Method) -> Result<String, Page> {
        match self.guard.get() {
            Some(guard) => guard.admin.authorize(sent, method).await,
            None => Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")),
        }
    }

    /// Makes a page when its turn has come, beside the tasks that must not wait.
    async fn page(
        self: Arc<Self>,
        name: String,
        method: Method,
        parameters: HashMap<String, String>,
        access: Access,
    ) -> Page {
        let Ok(_turn) = self.turns.acquire().await else {
            return Page::text(StatusCode::SERVICE_UNAVAILABLE, "closing\n");
        };
        let ops = self.clone();
        let made = tokio::task::spawn_blocking(move || {
            pages::answer(&ops, &Asked { name: &name, method: &method, parameters: &parameters, access: &access })
        });
        made.await.unwrap_or_else(|error| {
            error!(%error, "cannot make a debug page");
            Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be made; the log says why\n")
        })
    }
}

/// The pages of `--httpAddr`.
pub(crate) fn readiness(ops: Arc<Ops>, debug: bool) -> Router {
    let router = Router::new().route("/ready", get(ready));
    if debug { router.merge(debug_pages()) } else { router }.with_state(ops)
}

/// The pages of `--monitoringAddr`.
pub(crate) fn monitoring(ops: Arc<Ops>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/version", get(|| async { version::dashed() }))
        .merge(debug_pages())
        .with_state(ops)
}

fn debug_pages() -> Router<Arc<Ops>> {
    Router::new()
        .route("/debug", any(debug_index))
        .route("/debug/", any(debug_index))
        .route("/debug/{*name}", any(debug_page))
}

async fn debug_index(
    state: Shared,
    peer: Extension<Peer>,
    method: Method,
    headers: HeaderMap,
    (local, uri): (Extension<Local>, Uri),
    parameters: Parameters,
) -> Page {
    debug_page(state, peer, method, headers, (local, uri), Path(String::new()), parameters).await
}

async fn debug_page(
    State(ops): Shared,
    Extension(peer): Extension<Peer>,
    method: Method,
    headers: HeaderMap,
    (Extension(local), uri): (Extension<Local>, Uri),
    Path(name): Path<String>,
    Query(parameters): Parameters,
) -> Page {
    let reads = method == Method::GET || method == Method::HEAD;
    if let Some(action) = Action::of(&name, &parameters).filter(|_| !reads) {
        let sent = Sent { method: &method, uri: &uri, headers: &headers, peer, local };
        return match ops.authorize(&sent, &Method::POST).await {
            Ok(account) => actions::act(ops, action, parameters, account).await,
            Err(refused) => refused,
        };
    }
    let access = match ops.guard.get() {
        Some(guard) => guard.http(peer, &uri, &headers).await,
        None if peer.is_loopback() => Ok(Access::All),
        None => Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")),
    };
    match access {
        Ok(access) => ops.page(name, method, parameters, access).await,
        Err(turned_away) => turned_away,
    }
}

async fn ready(State(ops): Shared) -> (StatusCode, &'static str) {
    if ops.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else if !ops.provider.ready() {
        (StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
    } else if !ops.open.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "not every port is open: the root of the mesh is not known yet\n")
    } else {
        (StatusCode::OK, "")
    }
}

async fn metrics_page(State(ops): Shared, Extension(peer): Extension<Peer>) -> Response {
    if ops.metrics_on_loopback_only && !peer.is_loopback() {
        return (StatusCode::FORBIDDEN, "metrics are served to loopback only: METRICS_LOCALHOST_ACCESS_ONLY is set\n")
            .into_response();
    }
    ops.metrics.show_patches(&(ops.patches)());
    match ops.metrics.page() {
        Ok(page) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response(),
        Err(error) => {
            error!(%error, "cannot show the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;

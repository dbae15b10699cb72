//! What operators see: readiness, metrics, version and debug pages. They read, but for the one that goes on with a change of roots.

mod config_dump;
mod connections;
mod envoy_filters;
pub(crate) mod http;
pub(crate) mod memory;
pub(crate) mod metrics;
mod process;
pub(crate) mod pushes;
pub(crate) mod status;
pub(crate) mod watches;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use serde::Serialize;
use sources::kube::Health;
use tracing::error;

use crate::serve::Rotation;
use crate::version;
use config_dump::Endpoints;
use http::Peer;
use metrics::Metrics;

/// What the pages show.
pub(crate) struct Ops {
    pub(crate) provider: Arc<dyn xds::Provider>,
    pub(crate) connections: Arc<xds::Connections>,
    pub(crate) metrics: Arc<Metrics>,
    /// `None`: no API server is watched.
    pub(crate) watches: Option<Health>,
    /// How far the patches of EnvoyFilters reach, counted anew each time.
    pub(crate) patches: Box<dyn Fn() -> Vec<views::PatchReach> + Send + Sync>,
    pub(crate) metrics_on_loopback_only: bool,
    /// How roots are changed. Not set: there is no authority of ours on the secure port.
    pub(crate) rotation: OnceLock<Rotation>,
    /// Set once, when the process is told to end.
    pub(crate) draining: AtomicBool,
}

type Shared = State<Arc<Ops>>;
type Parameters = Query<HashMap<String, String>>;

/// The pages of `--httpAddr`.
pub(crate) fn readiness(ops: Arc<Ops>) -> Router {
    Router::new().route("/ready", get(ready)).with_state(ops)
}

/// The pages of `--monitoringAddr`.
pub(crate) fn monitoring(ops: Arc<Ops>) -> Router {
    let debug = Router::new()
        .route("/debug", get(index))
        .route("/debug/", get(index))
        .route("/debug/adsz", get(adsz))
        .route("/debug/ca", get(authority))
        .route("/debug/ca/rotate", post(rotate))
        .route("/debug/config_dump", get(config_dump))
        .route("/debug/connections", get(connected))
        .route("/debug/envoyfilters", get(envoy_filters))
        .route("/debug/list", get(list))
        .route("/debug/memory", get(memory_page))
        .route("/debug/proxies", get(proxies))
        .route("/debug/pushes", get(pushes))
        .route("/debug/syncz", get(syncz))
        .route("/debug/watches", get(watch_page))
        .layer(middleware::from_fn(only_loopback));
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/version", get(|| async { version::dashed() }))
        .merge(debug)
        .with_state(ops)
}

const PAGES: [(&str, &str); 9] = [
    ("adsz", "connected proxies and what each watches"),
    ("ca", "the roots, and how far a change of them has come, for `meltemi ca`; POST to ca/rotate goes on"),
    ("config_dump", "what one proxy should hold, as Envoy would show it; ?proxyID=, &include_eds"),
    ("connections", "connected proxies"),
    ("envoyfilters", "what each patch of an EnvoyFilter matched: resources, and classes of connected proxies"),
    ("memory", "what the stages of a push hold, and bytes per proxy, service and endpoint"),
    ("proxies", "connected proxies and how far each has come, for `meltemi proxies`"),
    ("pushes", "the last pushes: cause, reach, times, answers, for `meltemi pushes`; ?after= an id"),
    ("syncz", "what each proxy was sent and has acknowledged; ?namespace="),
    ("watches", "how the watches of the API server are: live, listing or stalled, since when, why"),
];

async fn ready(State(ops): Shared) -> (StatusCode, &'static str) {
    if ops.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else if ops.provider.ready() {
        (StatusCode::OK, "")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
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

/// Until callers can prove who they are, nobody but this host may look at the configuration of others.
async fn only_loopback(Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if peer.is_loopback() {
        next.run(request).await
    } else {
        let why = "debug pages answer loopback only in this version; use a port-forward to this host\n";
        (StatusCode::FORBIDDEN, why).into_response()
    }
}

async fn index() -> Html<String> {
    let rows: String = PAGES
        .iter()
        .map(|(name, what)| format!("<tr><td><a href=\"/debug/{name}\">{name}</a></td><td>{what}</td></tr>\n"))
        .collect();
    Html(format!("<!doctype html>\n<title>meltemi debug</title>\n<table>\n{rows}</table>\n"))
}

async fn list(Query(parameters): Parameters) -> Response {
    json(&parameters, &PAGES.map(|(name, _)| format!("/debug/{name}")))
}

async fn syncz(State(ops): Shared, Query(parameters): Parameters) -> Response {
    let namespace = parameters.get("namespace").map(String::as_str).filter(|namespace| !namespace.is_empty());
    json(&parameters, &connections::syncz(&ops.connections.snapshot(), namespace))
}

async fn adsz(State(ops): Shared, Query(parameters): Parameters) -> Response {
    json(&parameters, &connections::adsz(&ops.connections.snapshot()))
}

const NO_ROTATION: &str =
    "there is no root here that could be changed: the authority is plugged in or external, or the secure port is off\n";

async fn authority(State(ops): Shared, Query(parameters): Parameters) -> Response {
    match ops.rotation.get() {
        Some(rotation) => json(&parameters, &rotation.status()),
        None => (StatusCode::NOT_FOUND, NO_ROTATION).into_response(),
    }
}

async fn rotate(State(ops): Shared, Query(parameters): Parameters) -> Response {
    match ops.rotation.get().map(|rotation| rotation.rotate(SystemTime::now())) {
        Some(Ok(status)) => json(&parameters, &status),
        Some(Err(why)) => (StatusCode::CONFLICT, format!("{why}\n")).into_response(),
        None => (StatusCode::NOT_FOUND, NO_ROTATION).into_response(),
    }
}

async fn connected(State(ops): Shared, Query(parameters): Parameters) -> Response {
    json(&parameters, &connections::connections(&ops.connections.snapshot()))
}

async fn envoy_filters(State(ops): Shared, Query(parameters): Parameters) -> Response {
    json(&parameters, &envoy_filters::document(&(ops.patches)()))
}

async fn proxies(State(ops): Shared, Query(parameters): Parameters) -> Response {
    json(&parameters, &connections::proxies(&ops.connections.snapshot()))
}

async fn watch_page(State(ops): Shared, Query(parameters): Parameters) -> Response {
    let now = std::time::SystemTime::now();
    json(&parameters, &ops.watches.as_ref().map(|health| watches::page(health, now)).unwrap_or_default())
}

async fn memory_page(State(ops): Shared, Query(parameters): Parameters) -> Response {
    let (resident, counts, parts) = ops.metrics.memory();
    json(&parameters, &memory::document(resident, ops.connections.len(), counts, parts))
}

async fn pushes(State(ops): Shared, Query(parameters): Parameters) -> Response {
    let after = parameters.get("after").and_then(|id| id.parse().ok()).unwrap_or(0);
    let journal = ops.provider.journal();
    json(&parameters, &journal.map(|journal| pushes::pushes(&journal, after)).unwrap_or_default())
}

async fn config_dump(State(ops): Shared, Query(parameters): Parameters) -> Response {
    let Some(wanted) = parameters.get("proxyID").filter(|id| !id.is_empty()) else {
        let usage = "You must provide a proxyID in the query string, such as /debug/config_dump?proxyID=cart-1.shop\n";
        return (StatusCode::BAD_REQUEST, usage).into_response();
    };
    let Some(connection) = ops.connections.snapshot().into_iter().find(|it| it.id.contains(wanted.as_str())) else {
        return (StatusCode::NOT_FOUND, NOT_CONNECTED).into_response();
    };
    let endpoints = if parameters.contains_key("include_eds") { Endpoints::Shown } else { Endpoints::Hidden };
    let document =
        tokio::task::spawn_blocking(move || config_dump::document(connection.class.as_ref(), endpoints)).await;
    match document {
        Ok(document) => json(&parameters, &document),
        Err(error) => {
            error!(%error, "cannot show the configuration of a proxy");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// istioctl looks for this text, to ask the next replica.
const NOT_CONNECTED: &str = "Proxy not connected to this Pilot instance. It may be connected to another instance.";

fn json(parameters: &HashMap<String, String>, value: &impl Serialize) -> Response {
    let text = if parameters.contains_key("pretty") {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            error!(%error, "cannot write a page");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;

//! The HTTP routes: readiness, metrics, version and debug pages. What a page holds is in `debug_pages`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use server::http_port::HttpConnection;
use server::version;

use crate::actions::{self, Action};
use crate::authorization::AdminRequest;
use crate::console;
use crate::http::{Local, Peer};
use crate::page::Page;
use crate::plan;
use crate::scope;
use crate::state::AdminState;

type Shared = State<Arc<AdminState>>;
type Parameters = Query<HashMap<String, String>>;

/// The pages of `--httpAddr`.
pub fn readiness(state: Arc<AdminState>, debug: bool) -> Router {
    let router = Router::new().route("/ready", get(ready));
    if debug { router.merge(debug_pages()) } else { router }.with_state(state)
}

/// The pages of `--monitoringAddr`.
pub fn monitoring(state: Arc<AdminState>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_page))
        .route("/version", get(|| async { version::dashed() }))
        .merge(debug_pages())
        .merge(console::routes())
        .with_state(state)
}

/// Routes for callers on this host alone.
pub fn for_loopback(routes: Router) -> Router {
    routes.layer(from_fn(|Extension(peer): Extension<Peer>, request: Request, next: Next| async move {
        if peer.is_loopback() {
            next.run(request).await
        } else {
            (StatusCode::FORBIDDEN, "the injection webhook is served to loopback only without --httpsAddr\n")
                .into_response()
        }
    }))
}

fn debug_pages() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/debug", any(debug_page))
        .route("/debug/", any(debug_page))
        .route("/debug/plan", post(plan_page).fallback(debug_page))
        .route("/debug/scope", post(scope_page).fallback(debug_page))
        .route("/debug/{*name}", any(debug_page))
}

/// As a plan, it puts nothing in force.
async fn scope_page(
    State(state): Shared,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    uri: Uri,
    Query(parameters): Parameters,
    connection: Extension<Arc<HttpConnection>>,
    body: Body,
) -> Page {
    match state.access(peer, &uri, &headers).await {
        Ok(access) => scope::page::answer(state, access, parameters, connection, body).await,
        Err(rejection) => rejection,
    }
}

/// A plan puts nothing in force: whoever may read debug pages may ask for one.
async fn plan_page(
    State(state): Shared,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    uri: Uri,
    Query(parameters): Parameters,
    connection: Extension<Arc<HttpConnection>>,
    body: Body,
) -> Page {
    match state.access(peer, &uri, &headers).await {
        Ok(access) => plan::page::answer(state.server.planner.clone(), access, parameters, connection, body).await,
        Err(rejection) => rejection,
    }
}

/// The page that the path names; the index if it names none.
async fn debug_page(
    State(state): Shared,
    Extension(peer): Extension<Peer>,
    method: Method,
    headers: HeaderMap,
    (Extension(local), uri): (Extension<Local>, Uri),
    decoded: Option<Path<String>>,
    Query(parameters): Parameters,
) -> Page {
    let literal = || uri.path().strip_prefix("/debug/").unwrap_or_default().to_owned();
    let name = decoded.map_or_else(literal, |Path(name)| name);
    let reads = method == Method::GET || method == Method::HEAD;
    if let Some(action) = Action::of(&name, &parameters).filter(|_| !reads) {
        let request = AdminRequest { method: &method, uri: &uri, headers: &headers, peer, local };
        return match state.authorize(&request, &Method::POST).await {
            Ok(account) => actions::act(state, action, parameters, account).await,
            Err(rejection) => rejection,
        };
    }
    match state.access(peer, &uri, &headers).await {
        Ok(access) => state.page(name, method, parameters, access).await,
        Err(rejection) => rejection,
    }
}

async fn ready(State(state): Shared) -> (StatusCode, &'static str) {
    if state.server.draining.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else if !state.server.provider.ready() {
        (StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n")
    } else if !state.server.ports_open.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "not every port is open: the root of the mesh is not known yet\n")
    } else {
        (StatusCode::OK, "")
    }
}

async fn metrics_page(State(state): Shared, Extension(peer): Extension<Peer>) -> Response {
    if state.metrics_on_loopback_only && !peer.is_loopback() {
        return (StatusCode::FORBIDDEN, "metrics are served to loopback only: METRICS_LOCALHOST_ACCESS_ONLY is set\n")
            .into_response();
    }
    match state.metrics_page().await {
        Some(page) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests;

//! The page `/debug/scope`: observed calls in the body of a POST, in the response a Sidecar for each namespace that has none.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use server::http_port::HttpConnection;
use tracing::error;

use super::observed_use::ObservedCalls;
use super::{ScopeLimits, unscoped};
use crate::access::Access;
use crate::page::Page;
use crate::registry::MeshState;
use crate::state::AdminState;

/// Ten thousand workloads that call ten hosts each, in bytes.
const MAX_BODY: usize = 16 << 20;

pub(crate) async fn answer(
    state: Arc<AdminState>,
    access: Access,
    parameters: HashMap<String, String>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    body: Body,
) -> Page {
    if access != Access::All {
        return Page::text(StatusCode::FORBIDDEN, "/debug/scope is for the control plane's namespace\n");
    }
    let mut held = connection.hold_body();
    let body = match held.read(body, MAX_BODY).await {
        Ok(body) => body,
        Err(status) => return Page::text(status, "the observed calls have 16 MiB at most\n"),
    };
    let computed = tokio::task::spawn_blocking(move || {
        let page = suggestions(&state, &parameters, &body);
        drop((body, held));
        page
    });
    computed.await.unwrap_or_else(|error| {
        error!(%error, "cannot suggest Sidecars");
        Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the Sidecars could not be computed; the log says why\n")
    })
}

fn suggestions(state: &AdminState, parameters: &HashMap<String, String>, body: &[u8]) -> Page {
    let observed: ObservedCalls = match serde_json::from_slice(body) {
        Ok(observed) => observed,
        Err(why) => return Page::text(StatusCode::BAD_REQUEST, &format!("the body is not observed calls: {why}\n")),
    };
    let MeshState { objects: Some(objects), mesh: Some(mesh) } = state.mesh_state() else {
        return Page::text(StatusCode::SERVICE_UNAVAILABLE, "the first load is not complete\n");
    };
    let asked = parameters.get("namespace");
    let mut connections = state.server.connections.snapshot();
    connections.retain(|it| asked.is_none_or(|asked| *asked == it.proxy.namespace));
    let found = unscoped(&objects, &mesh, &connections, &observed, ScopeLimits::ALL);
    Page::json(parameters.contains_key("pretty"), &found)
}

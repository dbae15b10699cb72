//! Log levels while the server runs: ControlZ's `/scopej` on loopback, which `istioctl admin log` asks. Changes need a token, which istioctl does not
//! send.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Value, json};
use tracing::info;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::Ops;
use super::admin::Sent;
use super::http::{Local, Peer};
use crate::settings::{Levels, SCOPES};

/// The filter that is in use, and what it was made from.
pub(crate) struct Scopes {
    levels: Mutex<Levels>,
    handle: reload::Handle<EnvFilter, Registry>,
}

impl Scopes {
    pub(crate) fn new(levels: Levels, handle: reload::Handle<EnvFilter, Registry>) -> Arc<Scopes> {
        Arc::new(Scopes { levels: Mutex::new(levels), handle })
    }

    fn shown(&self) -> Vec<Value> {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SCOPES.iter().map(|(name, description, _)| shown(name, description, levels.of(name))).collect()
    }

    fn set(&self, scope: &str, level: &str, account: &str) -> Result<(), String> {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let next = levels.with(scope, level).ok_or_else(|| format!("no scope {scope:?} with level {level:?}"))?;
        self.handle.reload(EnvFilter::new(next.filter())).map_err(|error| error.to_string())?;
        *levels = next;
        info!(scope, level, account, "log level changed");
        Ok(())
    }
}

fn shown(name: &str, description: &str, level: &str) -> Value {
    json!({"name": name, "description": description, "output_level": level, "stack_trace_level": "none", "log_callers": false})
}

/// `ops`: who may change something.
pub(crate) fn router(scopes: Arc<Scopes>, ops: Arc<Ops>) -> Router {
    Router::new()
        .route("/scopej", get(all))
        .route("/scopej/", get(all))
        .route("/scopej/{scope}", get(one).put(change))
        .layer(Extension(ops))
        .with_state(scopes)
}

fn json_page(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn all(State(scopes): State<Arc<Scopes>>) -> Response {
    json_page(StatusCode::OK, &scopes.shown().into())
}

async fn one(State(scopes): State<Arc<Scopes>>, Path(scope): Path<String>) -> Response {
    match scopes.shown().into_iter().find(|shown| shown["name"] == scope) {
        Some(shown) => json_page(StatusCode::OK, &shown),
        None => (StatusCode::BAD_REQUEST, format!("unknown scope {scope}\n")).into_response(),
    }
}

async fn change(
    State(scopes): State<Arc<Scopes>>,
    (Extension(ops), Extension(peer), Extension(local)): (Extension<Arc<Ops>>, Extension<Peer>, Extension<Local>),
    uri: Uri,
    headers: HeaderMap,
    Path(scope): Path<String>,
    body: Bytes,
) -> Response {
    if !peer.is_loopback() {
        return (StatusCode::FORBIDDEN, "log levels are changed from loopback only\n").into_response();
    }
    let sent = Sent { method: &Method::PUT, uri: &uri, headers: &headers, peer, local };
    let account = match ops.authorize(&sent, &Method::PUT).await {
        Ok(account) => account,
        Err(refused) => return refused.into_response(),
    };
    let asked: BTreeMap<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
    let level = asked.get("output_level").and_then(Value::as_str).unwrap_or_default();
    match scopes.set(&scope, level, &account) {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

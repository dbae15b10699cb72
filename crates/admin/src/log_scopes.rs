//! Log levels at run time: ControlZ's `/scopej` on loopback, for `istioctl admin log`. Changes need a token, which istioctl does not send.

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

use crate::authorization::AdminRequest;
use crate::http::{Local, Peer};
use crate::log_levels::{LogLevels, SCOPES};
use crate::state::AdminState;

/// The filter in use, and its levels.
pub struct LogScopes {
    levels: Mutex<LogLevels>,
    handle: reload::Handle<EnvFilter, Registry>,
}

impl LogScopes {
    pub fn new(levels: LogLevels, handle: reload::Handle<EnvFilter, Registry>) -> Arc<LogScopes> {
        Arc::new(LogScopes { levels: Mutex::new(levels), handle })
    }

    fn list(&self) -> Vec<Value> {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SCOPES.iter().map(|(name, description, _)| entry(name, description, levels.level_of(name))).collect()
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

fn entry(name: &str, description: &str, level: &str) -> Value {
    json!({"name": name, "description": description, "output_level": level, "stack_trace_level": "none", "log_callers": false})
}

/// `admin`: authorizes changes.
pub fn router(scopes: Arc<LogScopes>, admin: Arc<AdminState>) -> Router {
    Router::new()
        .route("/scopej", get(all))
        .route("/scopej/", get(all))
        .route("/scopej/{scope}", get(one).put(change))
        .layer(Extension(admin))
        .with_state(scopes)
}

fn json_page(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn all(State(scopes): State<Arc<LogScopes>>) -> Response {
    json_page(StatusCode::OK, &scopes.list().into())
}

async fn one(State(scopes): State<Arc<LogScopes>>, Path(scope): Path<String>) -> Response {
    match scopes.list().into_iter().find(|shown| shown["name"] == scope) {
        Some(shown) => json_page(StatusCode::OK, &shown),
        None => (StatusCode::BAD_REQUEST, format!("unknown scope {scope}\n")).into_response(),
    }
}

async fn change(
    State(scopes): State<Arc<LogScopes>>,
    (Extension(admin), Extension(peer), Extension(local)): (
        Extension<Arc<AdminState>>,
        Extension<Peer>,
        Extension<Local>,
    ),
    uri: Uri,
    headers: HeaderMap,
    Path(scope): Path<String>,
    body: Bytes,
) -> Response {
    if !peer.is_loopback() {
        return (StatusCode::FORBIDDEN, "log levels are changed from loopback only\n").into_response();
    }
    let request = AdminRequest { method: &Method::PUT, uri: &uri, headers: &headers, peer, local };
    let account = match admin.authorize(&request, &Method::PUT).await {
        Ok(account) => account,
        Err(rejection) => return rejection.into_response(),
    };
    let body: BTreeMap<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
    let level = body.get("output_level").and_then(Value::as_str).unwrap_or_default();
    match scopes.set(&scope, level, &account) {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

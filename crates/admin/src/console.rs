//! The web console: its assets, and the data that only it needs. Everything else it reads from the debug pages. Who may read is decided as for
//! them; the shell itself has no data, so that somebody without access gets the page that asks for a token.

mod assets;
mod certificates;
mod change_log;
mod convergence;
mod live;
mod objects;
mod overview;
mod proxy_rows;
mod push_progress;
mod reach;
mod resources;
mod sampler;
mod weight;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Value, json};
use server::version;

use crate::access::Access;
use crate::authorization::is_same_origin;
use crate::http::Peer;
use crate::page::Page;
use crate::state::AdminState;

use work::Work;

pub(crate) use convergence::{COLUMN, ConvergenceHistory};
pub(crate) use live::Hub;

type Shared = State<Arc<AdminState>>;

pub(crate) fn routes() -> Router<Arc<AdminState>> {
    Router::new()
        .route("/console", get(|| async { Redirect::permanent("/console/") }))
        .route("/console/", get(|| async { assets::shell() }))
        .route("/console/{name}", get(|Path(name): Path<String>, uri: Uri| async move { assets::file(&name, &uri) }))
        .route("/console/api/live", get(live_events))
        .route("/console/api/{name}", get(data))
}

/// The parts of a request that decide who may read.
struct Caller {
    peer: Peer,
    uri: Uri,
    headers: HeaderMap,
}

impl Caller {
    async fn access(&self, state: &AdminState) -> Result<Access, Page> {
        if !is_same_origin(&self.headers) {
            return Err(Page::text(StatusCode::FORBIDDEN, "the request comes from a web page of another origin\n"));
        }
        state.access(self.peer, &self.uri, &self.headers).await
    }
}

async fn live_events(
    State(state): Shared,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
    Query(parameters): Query<HashMap<String, String>>,
) -> Response {
    let caller = Caller { peer, uri, headers };
    let answer = match caller.access(&state).await {
        Ok(access) => live::response(&state, &caller.headers, &parameters, access),
        Err(rejection) => Err(rejection),
    };
    without_cache(answer.into_response())
}

async fn data(
    State(state): Shared,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    Query(parameters): Query<HashMap<String, String>>,
) -> Response {
    let caller = Caller { peer, uri, headers };
    let access = match caller.access(&state).await {
        Ok(access) => access,
        Err(rejection) => return without_cache(rejection.into_response()),
    };
    let spent = Arc::new(OnceLock::new());
    let kept = spent.clone();
    let computed = state.compute(move |state| {
        let work = Work::begin();
        let page = answer(state, &name, &parameters, &access);
        // Set nowhere else.
        let _ = kept.set(work.spent());
        page
    });
    let mut response = without_cache(computed.await.into_response());
    if let Some(timing) = spent.get().copied().and_then(server_timing) {
        response.headers_mut().insert(SERVER_TIMING, timing);
    }
    response
}

/// In milliseconds. A page asks again after many times as long, so that it takes a small part of a processor however large the mesh is.
fn server_timing(spent: Duration) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("page;dur={:.1}", spent.as_secs_f64() * 1000.0)).ok()
}

fn answer(state: &AdminState, name: &str, parameters: &HashMap<String, String>, access: &Access) -> Page {
    match name {
        "session" => Page::json(false, &session(state, access)),
        "proxy" => resources::list(state, parameters, access),
        "resource" => resources::content(state, parameters, access),
        "objects" => objects::list(state, access),
        "object" => objects::one(state, parameters, access),
        "weight" => weight::page(state, access),
        "certificates" => certificates::page(state, access),
        "push" => push_progress::page(state, parameters, access),
        _ => Page::text(StatusCode::NOT_FOUND, "the console has no such data\n"),
    }
}

/// Who is asking, and whom: the first request of the console, which finds out whether a token is needed.
fn session(state: &AdminState, access: &Access) -> Value {
    json!({
        "namespace": match access { Access::All => None, Access::Namespace(namespace) => Some(namespace) },
        "version": version::VERSION,
        "revision": state.effective.revision,
        "server": state.console.epoch(),
        "cluster": state.server.views.as_ref().and_then(|views| views.mesh()).map(|mesh| mesh.env.cluster_id.to_string()),
    })
}

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const NOSNIFF: (HeaderName, HeaderValue) = (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

fn without_cache(mut response: Response) -> Response {
    response.headers_mut().extend([NOSNIFF, NO_STORE]);
    response
}

/// For pages of the console that name objects of every namespace.
fn for_control_plane(access: &Access) -> Result<(), Page> {
    match access {
        Access::All => Ok(()),
        Access::Namespace(_) => Err(Page::text(
            StatusCode::FORBIDDEN,
            "this is for the control plane's namespace; yours may see its own proxies and objects\n",
        )),
    }
}

//! The webhooks. Validation is here: AdmissionReviews of Istio objects. What a review says of an object is in `review`, injection in
//! `injection`, connections are in `connection`.

mod connection;
mod injection;
mod reach;
mod review;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::error;
use xds::PortListener;

use crate::http_port::HttpConnection;
use crate::injection::InjectionService;
use crate::metrics::ValidationMetrics;
use crate::planner::Planner;
pub(crate) use injection::routes as injection_routes;
use review::Reviewer;

/// The limit of an API server for the requests that it gets itself; of an object and its predecessor together.
const MAX_BODY: usize = 3 << 20;
/// Reviews that are computed at a time: they share the CPUs with pushes.
const REVIEWS_AT_A_TIME: usize = 2;

/// What the handler needs.
#[derive(Clone)]
struct Webhook {
    reviewer: Arc<Reviewer>,
    permits: Arc<Semaphore>,
    /// `None`: responses do not tell how many proxies an object reaches.
    reach: Option<Arc<Planner>>,
}

/// The TLS configuration of the port. `tls`: of the secure port; this port has the same certificate. `client_ca`: a file with the roots of
/// the clients that may call; `None`: everybody may.
pub(crate) fn acceptor(tls: &TlsAcceptor, client_ca: Option<&Path>) -> Result<TlsAcceptor> {
    let roots = client_ca.map(client_roots).transpose()?;
    connection::acceptor(tls, roots.as_deref()).context("the validation webhook cannot serve TLS")
}

fn client_roots(file: &Path) -> Result<Vec<ca::Certificate>> {
    let what = || format!("MELTEMI_WEBHOOK_CLIENT_CA {}", file.display());
    let text = std::fs::read_to_string(file).with_context(what)?;
    ca::bundle(&text).with_context(what)
}

/// Serves until the task is dropped. `injection`: `None` if it is off. `reach`: for warnings of how many proxies an object reaches; `None`: none.
pub(crate) async fn serve(
    listener: PortListener,
    tls: TlsAcceptor,
    counts: ValidationMetrics,
    injection: Option<Arc<InjectionService>>,
    reach: Option<Arc<Planner>>,
) {
    let injection = injection.map(injection_routes).unwrap_or_default();
    connection::serve(listener, tls, router(counts, reach).merge(injection), connection::LIMITS).await;
}

fn router(counts: ValidationMetrics, reach: Option<Arc<Planner>>) -> Router {
    let permits = Arc::new(Semaphore::new(REVIEWS_AT_A_TIME));
    Router::new().route("/validate", post(validate)).with_state(Webhook {
        reviewer: Arc::new(Reviewer::new(counts)),
        permits,
        reach,
    })
}

async fn validate(
    State(Webhook { reviewer, permits, reach }): State<Webhook>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    body: Body,
) -> Response {
    let mut held = connection.hold_body();
    let body = match held.read(body, MAX_BODY).await {
        Ok(body) => body,
        Err(status) => return reviewer.unreadable(status),
    };
    let Ok(permit) = permits.acquire_owned().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    // Off the threads that serve streams. It goes on without the client, so that the permit and the body are its own.
    let computing = reviewer.clone();
    let computed = tokio::task::spawn_blocking(move || {
        let response = computing.answer(&body);
        drop(permit);
        response.map(|response| (response, body, held))
    });
    match computed.await {
        Ok(Some((response, body, _held))) => {
            let response = match &reach {
                Some(planner) => reach::with_warning(planner, &body, response).await,
                None => response,
            };
            ([(header::CONTENT_TYPE, "application/json")], response).into_response()
        }
        Ok(None) => reviewer.unreadable(StatusCode::BAD_REQUEST),
        Err(error) => {
            error!(%error, "cannot review an object");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

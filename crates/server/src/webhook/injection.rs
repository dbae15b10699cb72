//! The injection webhook over HTTP, with istiod's paths, limits and status codes.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use inject::{Review, refused};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt;
use tracing::warn;

use crate::injection::InjectionService;

/// istiod's limit of a request.
const MAX_BODY: usize = 6 << 20;
/// What is read and dropped of a larger one, so that its sender hears why; then the connection is closed.
const MAX_DROPPED: usize = 64 << 20;
/// Reviews that are answered at a time: they share the CPUs with pushes.
const AT_A_TIME: usize = 4;

struct Endpoint {
    service: Arc<InjectionService>,
    permits: Semaphore,
}

pub(crate) fn routes(service: Arc<InjectionService>) -> Router {
    let endpoint = Arc::new(Endpoint { service, permits: Semaphore::new(AT_A_TIME) });
    Router::new()
        .route("/inject", any(inject))
        .route("/inject/", any(inject))
        .route("/inject/{*pairs}", any(inject))
        .with_state(endpoint)
}

async fn inject(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let began = Instant::now();
    let metrics = &endpoint.service.metrics;
    metrics.requests.inc();
    let response = match respond(&endpoint, request).await {
        Ok(response) => {
            metrics.success.inc();
            response
        }
        Err((status, why)) => {
            metrics.failure.inc();
            warn!(status = status.as_u16(), why, "injection request rejected");
            (status, why + "\n").into_response()
        }
    };
    metrics.time.observe(began.elapsed().as_secs_f64());
    response
}

type Rejection = (StatusCode, String);

async fn respond(endpoint: &Arc<Endpoint>, request: Request) -> Result<Response, Rejection> {
    let (parts, body) = request.into_parts();
    let body = read(body).await?;
    if body.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "no body found".to_owned()));
    }
    if parts.headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        let why = "invalid Content-Type, want `application/json`";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
    }
    let closed = |_| (StatusCode::SERVICE_UNAVAILABLE, "shutting down".to_owned());
    let _permit = endpoint.permits.acquire().await.map_err(closed)?;
    let (service, path) = (endpoint.service.clone(), decoded(parts.uri.path()));
    let answered = spawn_blocking(move || match Review::parse(&body) {
        Ok(review) => service.answer(review, &path).ok_or_else(|| {
            let why = format!("no valid injection configuration: ConfigMap {}", service.described());
            (StatusCode::NOT_FOUND, why)
        }),
        Err(why) => {
            service.metrics.failure.inc();
            warn!(why, path, "injection review rejected");
            Ok(refused(&why))
        }
    });
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, "the review could not be answered".to_owned());
    answered.await.map_err(failed)?.map(|answer| axum::Json(answer).into_response())
}

async fn read(body: Body) -> Result<Vec<u8>, Rejection> {
    let (mut kept, mut dropped) = (Vec::new(), 0_usize);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| (StatusCode::BAD_REQUEST, format!("cannot read the request: {error}")))?;
        if dropped == 0 && kept.len() + chunk.len() <= MAX_BODY {
            kept.extend_from_slice(&chunk);
        } else {
            dropped += chunk.len();
        }
        if dropped > MAX_DROPPED {
            break;
        }
    }
    if dropped > 0 {
        let why = format!("Request entity too large: limit is {MAX_BODY}");
        return Err((StatusCode::BAD_REQUEST, why));
    }
    Ok(kept)
}

/// Percent signs of the path decoded; what is no UTF-8 then stays as it is.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let coded = digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(coded.unwrap_or(first));
        rest = if coded.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

//! The injection webhook over HTTP, with istiod's paths, limits and status codes.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use inject::{Review, refused};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_stream::StreamExt;
use tracing::warn;

use crate::http_port::{HttpConnection, ReceivedBytes};
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
    if let Some(cleaned) = cleaned(request.uri()) {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, cleaned)]).into_response();
    }
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
    // On the port of the webhooks; the port of --httpAddr takes loopback callers only.
    let mut held = parts.extensions.get::<Arc<HttpConnection>>().map(HttpConnection::hold_body);
    let body = read(body, held.as_mut()).await?;
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
    let answered = spawn_blocking(move || {
        let review = Review::parse(&body);
        drop((body, held));
        match review {
            Ok(review) => service.answer(review, &path).ok_or_else(|| {
                let why = format!("no valid injection configuration: ConfigMap {}", service.described());
                (StatusCode::NOT_FOUND, why)
            }),
            Err(why) => {
                service.metrics.failure.inc();
                warn!(why, path, "injection review rejected");
                Ok(refused(&why))
            }
        }
    });
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, "the review could not be answered".to_owned());
    answered.await.map_err(failed)?.map(|answer| axum::Json(answer).into_response())
}

async fn read(body: Body, mut held: Option<&mut ReceivedBytes>) -> Result<Vec<u8>, Rejection> {
    let (mut kept, mut dropped) = (Vec::new(), 0_usize);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| (StatusCode::BAD_REQUEST, format!("cannot read the request: {error}")))?;
        if dropped == 0 && kept.len() + chunk.len() <= MAX_BODY {
            let before = kept.capacity();
            kept.extend_from_slice(&chunk);
            if let Some(held) = &mut held {
                held.grow(kept.capacity() - before);
            }
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

/// Where Go's servers redirect a path with empty segments, `.` or `..`. `None`: it has none.
fn cleaned(uri: &Uri) -> Option<String> {
    let path = uri.path();
    let mut kept = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let end = if path.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    let cleaned = format!("/{}{end}", kept.join("/"));
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    (cleaned != path).then(|| cleaned + &query)
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

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use http_body_util::BodyExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use inject::{ControlPlane, NativeSidecars};
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::{CurrentObjects, InjectionMetrics};

    const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-sidecar-injector, namespace: istio-system}, data: {values: '{}', \
        config: '{policy: enabled, templates: {sidecar: \"metadata: {labels: {a: b}}\"}}'}}";

    fn service(objects: &str) -> Arc<InjectionService> {
        let plane = ControlPlane {
            revision: "default".into(),
            native_sidecars: NativeSidecars::Off,
            openshift: false,
            compliance_policy: String::new(),
            cluster_id: "Kubernetes".into(),
        };
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let current = Arc::new(CurrentObjects::default());
        current.set(store.apply(parse_documents("f", objects).objects.into_iter().map(Update::Put).collect()));
        let metrics = InjectionMetrics::register(&xds::Register::new(prometheus::Registry::new())).unwrap();
        Arc::new(InjectionService::new(plane, "istio-system", current, metrics))
    }

    async fn post(service: &Arc<InjectionService>, path: &str, kind: &str, body: impl Into<Bytes>) -> (u16, String) {
        let request = Request::post(path).header(header::CONTENT_TYPE, kind).body(Body::from(body.into())).unwrap();
        let response = TowerToHyperService::new(routes(service.clone())).call(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn review(labels: &Value) -> String {
        let pod = json!({ "metadata": { "name": "p", "labels": labels }, "spec": { "containers": [] } });
        let request = json!({ "uid": "u", "namespace": "shop", "object": pod });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
    }

    #[tokio::test]
    async fn status_codes_and_texts_are_istiods() {
        let service = service(CONFIG);
        let json = "application/json";
        assert_eq!(post(&service, "/inject", json, "").await, (400, "no body found\n".into()));
        let large = vec![b' '; MAX_BODY + 1];
        assert_eq!(
            post(&service, "/inject", json, large).await,
            (400, "Request entity too large: limit is 6291456\n".into())
        );
        let charset = post(&service, "/inject", "application/json; charset=utf-8", review(&json!({}))).await;
        assert_eq!(charset, (415, "invalid Content-Type, want `application/json`\n".into()));
        let (status, answer) = post(&service, "/inject", json, "this is no review").await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &answer["response"]["allowed"], answer.get("kind")), (200, &json!(false), None));
    }

    #[tokio::test]
    async fn every_form_of_the_path_is_answered_and_counted() {
        let service = service(CONFIG);
        for path in ["/inject", "/inject/", "/inject/cluster/a%20b/net/n", "/inject/:ENV:cluster=c"] {
            let (status, answer) = post(&service, path, "application/json", review(&json!({}))).await;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((status, &answer["response"]["patchType"]), (200, &json!("JSONPatch")), "{path}");
        }
        post(&service, "/inject", "application/json", review(&json!({ "sidecar.istio.io/inject": "false" }))).await;
        post(&service, "/inject", "application/json", "{}").await;
        let counts =
            [&service.metrics.requests, &service.metrics.success, &service.metrics.failure, &service.metrics.skipped];
        assert_eq!(counts.map(prometheus::IntCounter::get), [6, 6, 1, 1]);
        assert_eq!(service.metrics.time.get_sample_count(), 6);
    }

    #[test]
    fn a_path_that_go_would_clean_is_redirected() {
        for (path, expected) in [
            ("/inject//", Some("/inject/")),
            ("/inject//cluster/c?timeout=10s", Some("/inject/cluster/c?timeout=10s")),
            ("/inject/./net/n/../m", Some("/inject/net/m")),
            ("/inject/../..", Some("/")),
            ("/inject/", None),
            ("/inject/cluster/a%20b", None),
        ] {
            assert_eq!(cleaned(&path.parse().unwrap()).as_deref(), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn malformed_reviews_are_answered_and_harm_nobody_else() {
        let service = service(CONFIG);
        let pod = |object: &str| {
            format!(
                r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{"uid": "u", "object": {object}}}}}"#
            )
        };
        let deep = "[".repeat(100_000);
        for body in [
            deep.clone(),
            pod(&deep),
            pod("null"),
            pod("5"),
            pod(r#"{"spec": {"containers": {"name": "a"}}}"#),
            pod(r#"{"metadata": {"annotations": {"a": ["b"]}}}"#),
            pod(r#"{"metadata": {}, "spec": {}}"#).replace("\"u\"", "{}"),
            "{\"apiVersion\": 5}".to_owned(),
            "\u{0}".to_owned(),
        ] {
            let (status, answer) = post(&service, "/inject", "application/json", body).await;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(status, 200, "{answer}");
            assert!(answer["response"]["allowed"].is_boolean(), "{answer}");
            let message = answer["response"]["status"]["message"].as_str();
            assert!(answer["response"]["allowed"] == true || message.is_some_and(|text| !text.is_empty()), "{answer}");
        }
        let (_, answer) = post(&service, "/inject", "application/json", review(&json!({}))).await;
        assert!(answer.contains("JSONPatch"), "{answer}");
    }

    #[tokio::test]
    async fn without_a_config_map_there_is_a_404_that_names_it() {
        let (status, why) = post(&service(""), "/inject", "application/json", review(&json!({}))).await;
        assert_eq!(status, 404);
        assert!(why.contains("istio-system/istio-sidecar-injector"), "{why}");
    }
}

//! The webhooks. Validation is here: AdmissionReviews of Istio objects, answered with the diagnostics of `meltemi check`. Injection is in
//! `injection`, connections are in `connection`.

mod connection;
mod injection;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use config::diagnostic::Severity;
use config::json::ObjectTree;
use config::kind::Kind;
use config::object::parse_tree;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::injection::InjectionService;
use crate::metrics::ValidationMetrics;
use connection::Limits;
pub(crate) use injection::routes as injection_routes;

/// An object of 3 MB, twice, as JSON inside JSON.
const MAX_BODY: usize = 16 << 20;

/// Serves until the task is dropped. `tls`: of the secure port; this port has the same certificate. `injection`: `None` if it is off.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    counts: ValidationMetrics,
    injection: Option<Arc<InjectionService>>,
) {
    let injection = injection.map(injection_routes).unwrap_or_default();
    match connection::acceptor(&tls) {
        Ok(tls) => connection::serve(listener, tls, router(counts).merge(injection), Limits::default()).await,
        Err(error) => tracing::error!(%error, "the webhooks cannot serve TLS"),
    }
}

fn router(counts: ValidationMetrics) -> Router {
    Router::new().route("/validate", post(validate)).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(counts)
}

async fn validate(State(counts): State<ValidationMetrics>, body: Bytes) -> Response {
    match serde_json::from_slice::<Value>(&body) {
        Ok(review) if review["request"].is_object() => axum::Json(answer(&review, &counts)).into_response(),
        _ => {
            let status = StatusCode::BAD_REQUEST;
            counts.unreadable.with_label_values(&[status.as_str()]).inc();
            (status, "an AdmissionReview with a request is expected\n").into_response()
        }
    }
}

fn answer(review: &Value, counts: &ValidationMetrics) -> Value {
    let request = &review["request"];
    let result = review_object(request);
    count(request, &result, counts);
    if let Review::Rejected(why) = &result {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, namespace, name) =
            (text(&request["kind"]["kind"]), text(&request["namespace"]), text(&request["name"]));
        info!(kind, namespace, name, why, "object rejected");
    }
    let mut response = json!({ "uid": request["uid"], "allowed": !matches!(result, Review::Rejected(_)) });
    match result {
        Review::Foreign | Review::Accepted => {}
        Review::Warned(warnings) => response["warnings"] = warnings.into(),
        Review::Rejected(why) => response["status"] = json!({ "code": 422, "reason": "Invalid", "message": why }),
    }
    json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response })
}

/// Foreign kinds are not counted: their names may be anything, and each would be a label value.
fn count(request: &Value, result: &Review, counts: &ValidationMetrics) {
    let text = |field: &str| request["resource"][field].as_str().unwrap_or_default();
    let [group, version, resource] = ["group", "version", "resource"].map(text);
    match result {
        Review::Foreign => {}
        Review::Accepted | Review::Warned(_) => counts.passed.with_label_values(&[group, version, resource]).inc(),
        Review::Rejected(_) => {
            counts.failed.with_label_values(&[group, version, resource, "invalid_resource"]).inc();
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Review {
    /// Not a kind of Istio's.
    Foreign,
    Accepted,
    Warned(Vec<String>),
    Rejected(String),
}

fn review_object(request: &Value) -> Review {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version, kind) =
        (text(&request["kind"]["group"]), text(&request["kind"]["version"]), text(&request["kind"]["kind"]));
    let known = Kind::from_gvk(&format!("{group}/{version}"), &kind).filter(|kind| kind.is_istio());
    let Some(kind) = known else { return Review::Foreign };
    if request["operation"] == "DELETE" {
        return Review::Accepted;
    }
    let tree = match ObjectTree(kind).deserialize(&request["object"]) {
        Ok(tree) => tree,
        Err(error) => return Review::Rejected(format!("the object cannot be read: {error}")),
    };
    let diagnostics = parse_tree(kind, &tree).diagnostics;
    let messages = |severity| diagnostics.iter().filter(move |diagnostic| diagnostic.severity == severity).map(message);
    let errors: Vec<String> = messages(Severity::Error).collect();
    let warnings: Vec<String> = messages(Severity::Warning).collect();
    match (errors.is_empty(), warnings.is_empty()) {
        (false, _) => Review::Rejected(errors.join("; ")),
        (true, false) => Review::Warned(warnings),
        (true, true) => Review::Accepted,
    }
}

/// Without the object, which the API server names by itself.
fn message(diagnostic: &config::diagnostic::Diagnostic) -> String {
    // A rejected object is never in the mesh.
    let what = diagnostic.what.trim_end_matches("; the object is left out");
    if diagnostic.field.is_empty() { what.to_owned() } else { format!("{}: {what}", diagnostic.field) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(kind: &str, operation: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": operation,
                "kind": { "group": "networking.istio.io", "version": "v1", "kind": kind },
                "resource": { "group": "networking.istio.io", "version": "v1", "resource": "things" },
                "object": { "apiVersion": "networking.istio.io/v1", "kind": kind, "metadata": { "name": "a", "namespace": "n" }, "spec": spec },
            },
        })
    }

    fn counts() -> ValidationMetrics {
        ValidationMetrics::register(&xds::Register::new(prometheus::Registry::new())).unwrap()
    }

    fn bad() -> Value {
        json!({ "hosts": ["a"], "http": [{ "timeout": "soon", "route": [{ "destination": { "host": "a" } }] }] })
    }

    #[test]
    fn an_invalid_object_is_rejected_with_field_and_reason() {
        let answer = answer(&review("VirtualService", "CREATE", &bad()), &counts());
        assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("AdmissionReview"), &json!("u")));
        assert_eq!(answer["response"]["allowed"], false);
        let why = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(why.starts_with("spec.http[0].timeout: "), "{why}");
    }

    #[test]
    fn a_valid_object_a_deletion_and_foreign_kinds_are_allowed() {
        let good =
            json!({ "hosts": ["a"], "http": [{ "timeout": "1s", "route": [{ "destination": { "host": "a" } }] }] });
        for review in [
            review("VirtualService", "UPDATE", &good),
            review("VirtualService", "DELETE", &bad()),
            review("HTTPRoute", "CREATE", &bad()),
        ] {
            assert_eq!(answer(&review, &counts())["response"]["allowed"], true, "{review}");
        }
    }

    #[tokio::test]
    async fn reviews_are_counted_by_result() {
        let counts = counts();
        let good = json!({ "hosts": ["a"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] });
        for (kind, spec) in [("VirtualService", &bad()), ("VirtualService", &good), ("Other", &bad())] {
            answer(&review(kind, "CREATE", spec), &counts);
        }
        answer(&review("VirtualService", "DELETE", &bad()), &counts);
        let of = ["networking.istio.io", "v1", "things"];
        assert_eq!(counts.passed.with_label_values(&of).get(), 2);
        let [group, version, resource] = of;
        assert_eq!(counts.failed.with_label_values(&[group, version, resource, "invalid_resource"]).get(), 1);
        let response = validate(State(counts.clone()), Bytes::from_static(b"{}")).await;
        assert_eq!(
            (response.status(), counts.unreadable.with_label_values(&["400"]).get()),
            (StatusCode::BAD_REQUEST, 1)
        );
    }
}

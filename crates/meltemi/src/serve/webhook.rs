//! The validation webhook: an API server asks before it stores an object of Istio's kinds, and gets the notes of `meltemi check` for an
//! answer. How it is asked is in `connection`.

mod connection;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use config::json::ObjectTree;
use config::kind::Kind;
use config::note::Severity;
use config::object::parse_tree;
use serde::de::DeserializeSeed;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tracing::info;

use crate::ops::metrics::Validation;
use connection::Limits;

/// An object of 3 MB, twice, as JSON inside JSON.
const LONGEST: usize = 16 << 20;

/// Serves until the task is dropped. `tls`: the secure port's, whose certificate this port shows too.
pub(crate) async fn serve(listener: TcpListener, tls: TlsAcceptor, counts: Validation) {
    match connection::acceptor(&tls) {
        Ok(tls) => connection::serve(listener, tls, router(counts), Limits::default()).await,
        Err(error) => tracing::error!(%error, "the validation webhook cannot serve TLS"),
    }
}

fn router(counts: Validation) -> Router {
    Router::new().route("/validate", post(validate)).layer(DefaultBodyLimit::max(LONGEST)).with_state(counts)
}

async fn validate(State(counts): State<Validation>, body: Bytes) -> Response {
    match serde_json::from_slice::<Value>(&body) {
        Ok(review) if review["request"].is_object() => axum::Json(answer(&review, &counts)).into_response(),
        _ => {
            let status = StatusCode::BAD_REQUEST;
            counts.unreadable.with_label_values(&[status.as_str()]).inc();
            (status, "an AdmissionReview with a request is expected\n").into_response()
        }
    }
}

fn answer(review: &Value, counts: &Validation) -> Value {
    let request = &review["request"];
    let verdict = verdict(request);
    count(request, &verdict, counts);
    if let Verdict::Refused(why) = &verdict {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, namespace, name) =
            (text(&request["kind"]["kind"]), text(&request["namespace"]), text(&request["name"]));
        info!(kind, namespace, name, why, "an object was refused");
    }
    let mut response = json!({ "uid": request["uid"], "allowed": !matches!(verdict, Verdict::Refused(_)) });
    match verdict {
        Verdict::Foreign | Verdict::Accepted => {}
        Verdict::Warned(warnings) => response["warnings"] = warnings.into(),
        Verdict::Refused(why) => response["status"] = json!({ "code": 422, "reason": "Invalid", "message": why }),
    }
    json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response })
}

/// Kinds of others are not counted: their names are whatever somebody writes.
fn count(request: &Value, verdict: &Verdict, counts: &Validation) {
    let text = |field: &str| request["resource"][field].as_str().unwrap_or_default();
    let [group, version, resource] = ["group", "version", "resource"].map(text);
    match verdict {
        Verdict::Foreign => {}
        Verdict::Accepted | Verdict::Warned(_) => counts.passed.with_label_values(&[group, version, resource]).inc(),
        Verdict::Refused(_) => {
            counts.failed.with_label_values(&[group, version, resource, "invalid_resource"]).inc();
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Not ours to judge.
    Foreign,
    Accepted,
    Warned(Vec<String>),
    Refused(String),
}

fn verdict(request: &Value) -> Verdict {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version, kind) =
        (text(&request["kind"]["group"]), text(&request["kind"]["version"]), text(&request["kind"]["kind"]));
    let known = Kind::from_gvk(&format!("{group}/{version}"), &kind).filter(|kind| kind.is_istio());
    let Some(kind) = known else { return Verdict::Foreign };
    if request["operation"] == "DELETE" {
        return Verdict::Accepted;
    }
    let tree = match ObjectTree(kind).deserialize(&request["object"]) {
        Ok(tree) => tree,
        Err(error) => return Verdict::Refused(format!("the object cannot be read: {error}")),
    };
    let notes = parse_tree(kind, &tree).notes;
    let said = |severity| notes.iter().filter(move |note| note.severity == severity).map(said);
    let errors: Vec<String> = said(Severity::Error).collect();
    let warnings: Vec<String> = said(Severity::Warning).collect();
    match (errors.is_empty(), warnings.is_empty()) {
        (false, _) => Verdict::Refused(errors.join("; ")),
        (true, false) => Verdict::Warned(warnings),
        (true, true) => Verdict::Accepted,
    }
}

/// The API server names the object by itself.
fn said(note: &config::note::Note) -> String {
    // Nothing is left out of a mesh that the object never entered.
    let what = note.what.trim_end_matches("; the object is left out");
    if note.field.is_empty() { what.to_owned() } else { format!("{}: {what}", note.field) }
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

    fn counts() -> Validation {
        Validation::register(&xds::Register::new(prometheus::Registry::new())).unwrap()
    }

    fn bad() -> Value {
        json!({ "hosts": ["a"], "http": [{ "timeout": "soon", "route": [{ "destination": { "host": "a" } }] }] })
    }

    #[test]
    fn a_bad_object_is_refused_with_field_and_reason() {
        let answer = answer(&review("VirtualService", "CREATE", &bad()), &counts());
        assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("AdmissionReview"), &json!("u")));
        assert_eq!(answer["response"]["allowed"], false);
        let why = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(why.starts_with("spec.http[0].timeout: "), "{why}");
    }

    #[test]
    fn a_good_object_a_deletion_and_kinds_of_others_are_allowed() {
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
    async fn questions_are_counted_by_what_was_said() {
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

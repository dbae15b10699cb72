//! One AdmissionReview: from its text to the response, with the diagnostics of `meltemi check`. Nothing of it becomes a metric label but kinds
//! that are known, and only the object itself is parsed.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use config::diagnostic::{Diagnostic, ObjectId, Severity};
use config::json::ObjectTree;
use config::kind::Kind;
use config::object::parse_tree;
use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sources::kube::plural;
use tracing::{debug, info};
use xds::LogLimit;

use super::reach::Admitted;
use crate::metrics::ValidationMetrics;

/// Diagnostics that are reported of one object: thousands help nobody, and an API server cuts long texts.
const MAX_DIAGNOSTICS: usize = 20;

pub(super) struct Reviewer {
    counts: ValidationMetrics,
    /// Rate limit of log lines: anybody who reaches the port can have objects rejected.
    rejections: LogLimit,
}

/// What is read of an AdmissionReview.
#[derive(Deserialize)]
struct AdmissionReview<'a> {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: AdmissionRequest<'a>,
}

#[derive(Deserialize)]
struct AdmissionRequest<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: GroupVersionKind,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    operation: String,
    /// `None`: a deletion has none.
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Review {
    Accepted,
    Warned(Vec<String>),
    Rejected(String),
}

impl Reviewer {
    pub(super) fn new(counts: ValidationMetrics) -> Reviewer {
        Reviewer { counts, rejections: LogLimit::default() }
    }

    /// `None`: there is no AdmissionReview in the body.
    pub(super) fn answer(&self, body: &[u8]) -> Option<String> {
        let review = serde_json::from_slice::<AdmissionReview<'_>>(body).ok()?;
        let request = &review.request;
        let GroupVersionKind { group, version, kind } = &request.kind;
        let known = Kind::from_gvk(&format!("{group}/{version}"), kind).filter(|kind| kind.is_istio());
        // Kinds that are not Istio's are admitted and not counted.
        let result = known.map_or(Review::Accepted, |kind| {
            let result = request.review(kind);
            self.count(kind, version, &result);
            result
        });
        let mut response = json!({ "uid": request.uid, "allowed": !matches!(result, Review::Rejected(_)) });
        match result {
            Review::Accepted => {}
            Review::Warned(warnings) => response["warnings"] = warnings.into(),
            Review::Rejected(why) => {
                self.log(request, &why);
                response["status"] = json!({ "code": 422, "reason": "Invalid", "message": why });
            }
        }
        let answer: Value = json!({ "apiVersion": review.api_version, "kind": review.kind, "response": response });
        Some(answer.to_string())
    }

    pub(super) fn unreadable(&self, status: StatusCode) -> Response {
        self.counts.unreadable.with_label_values(&[status.as_str()]).inc();
        (status, "an AdmissionReview with a request, of 3 MiB at most, is expected\n").into_response()
    }

    /// `version`: one of the kind's own.
    fn count(&self, kind: Kind, version: &str, result: &Review) {
        let (group, resource) = (kind.group(), plural(kind));
        match result {
            Review::Accepted | Review::Warned(_) => {
                self.counts.passed.with_label_values(&[group, version, &resource]).inc();
            }
            Review::Rejected(_) => {
                self.counts.failed.with_label_values(&[group, version, &resource, "invalid_resource"]).inc();
            }
        }
    }

    fn log(&self, request: &AdmissionRequest<'_>, why: &str) {
        let AdmissionRequest { namespace, name, kind: GroupVersionKind { kind, .. }, .. } = request;
        match self.rejections.permits() {
            Some(skipped) => info!(kind, namespace, name, why, skipped, "object rejected"),
            None => debug!(kind, namespace, name, why, "object rejected"),
        }
    }
}

impl AdmissionRequest<'_> {
    fn review(&self, kind: Kind) -> Review {
        if self.operation == "DELETE" {
            return Review::Accepted;
        }
        let text = self.object.map_or("null", RawValue::get);
        let tree = match ObjectTree(kind).deserialize(&mut serde_json::Deserializer::from_str(text)) {
            Ok(tree) => tree,
            Err(error) => return Review::Rejected(format!("the object cannot be read: {error}")),
        };
        let diagnostics = parse_tree(kind, &tree).diagnostics;
        let (errors, warnings) = (messages(&diagnostics, Severity::Error), messages(&diagnostics, Severity::Warning));
        match (errors.is_empty(), warnings.is_empty()) {
            (false, _) => Review::Rejected(errors.join("; ")),
            (true, false) => Review::Warned(warnings),
            (true, true) => Review::Accepted,
        }
    }
}

/// What a review of an Istio object would do if it is accepted. `None`: its reach cannot be known.
pub(super) fn admitted(body: &[u8]) -> Option<Admitted> {
    let AdmissionReview { request, .. } = serde_json::from_slice(body).ok()?;
    let GroupVersionKind { group, version, kind } = &request.kind;
    let kind = Kind::from_gvk(&format!("{group}/{version}"), kind).filter(|kind| kind.is_istio())?;
    if request.operation == "DELETE" {
        let id = ObjectId { kind, namespace: request.namespace.into(), name: request.name.into() };
        return Some(Admitted::Deletion(id));
    }
    let text = request.object.map(RawValue::get)?;
    let tree = ObjectTree(kind).deserialize(&mut serde_json::Deserializer::from_str(text)).ok()?;
    Some(Admitted::Object(parse_tree(kind, &tree)))
}

fn messages(diagnostics: &[Diagnostic], severity: Severity) -> Vec<String> {
    let of_severity = || diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity);
    let mut messages: Vec<String> = of_severity().take(MAX_DIAGNOSTICS).map(message).collect();
    let more = of_severity().count() - messages.len();
    if more > 0 {
        messages.push(format!("and {more} more; `meltemi check` shows all"));
    }
    messages
}

/// Without the object, which the API server names by itself.
fn message(diagnostic: &Diagnostic) -> String {
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
                "oldObject": { "spec": { "hosts": 7 } },
            },
        })
    }

    fn reviewer() -> (Reviewer, prometheus::Registry) {
        let registry = prometheus::Registry::new();
        let counts = ValidationMetrics::register(&xds::Register::new(registry.clone())).unwrap();
        (Reviewer::new(counts), registry)
    }

    fn answer(review: &Value) -> Value {
        serde_json::from_str(&reviewer().0.answer(review.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn bad() -> Value {
        json!({ "hosts": ["a"], "http": [{ "timeout": "soon", "route": [{ "destination": { "host": "a" } }] }] })
    }

    #[test]
    fn an_invalid_object_is_rejected_with_field_and_reason() {
        let answer = answer(&review("VirtualService", "CREATE", &bad()));
        assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("AdmissionReview"), &json!("u")));
        assert_eq!(answer["response"]["allowed"], false);
        let why = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(why.starts_with("spec.http[0].timeout: "), "{why}");
    }

    #[test]
    fn a_valid_object_a_deletion_and_foreign_kinds_are_allowed() {
        let good =
            json!({ "hosts": ["a"], "http": [{ "timeout": "1s", "route": [{ "destination": { "host": "a" } }] }] });
        let mut deletion = review("VirtualService", "DELETE", &bad());
        deletion["request"]["object"] = Value::Null;
        for review in [review("VirtualService", "UPDATE", &good), deletion, review("HTTPRoute", "CREATE", &bad())] {
            assert_eq!(answer(&review)["response"]["allowed"], true, "{review}");
        }
    }

    #[test]
    fn reviews_are_counted_by_result() {
        let (reviewer, _) = reviewer();
        let good = json!({ "hosts": ["a"], "http": [{ "route": [{ "destination": { "host": "a" } }] }] });
        for (kind, spec) in [("VirtualService", &bad()), ("VirtualService", &good), ("Other", &bad())] {
            reviewer.answer(review(kind, "CREATE", spec).to_string().as_bytes());
        }
        reviewer.answer(review("VirtualService", "DELETE", &bad()).to_string().as_bytes());
        let of = ["networking.istio.io", "v1", "virtualservices"];
        assert_eq!(reviewer.counts.passed.with_label_values(&of).get(), 2);
        let [group, version, resource] = of;
        assert_eq!(reviewer.counts.failed.with_label_values(&[group, version, resource, "invalid_resource"]).get(), 1);
        assert_eq!(reviewer.answer(b"{}"), None);
        assert_eq!(reviewer.unreadable(StatusCode::BAD_REQUEST).status(), StatusCode::BAD_REQUEST);
        assert_eq!(reviewer.counts.unreadable.with_label_values(&["400"]).get(), 1);
    }

    #[test]
    fn forged_reviews_create_no_metric_labels() {
        let (reviewer, registry) = reviewer();
        for n in 0..2000 {
            let mut forged = review(if n % 2 == 0 { "VirtualService" } else { "Gateway" }, "CREATE", &bad());
            let made_up = format!("made-up-{n}");
            forged["request"]["resource"] = json!({ "group": made_up, "version": made_up, "resource": made_up });
            forged["request"]["operation"] = made_up.clone().into();
            if n % 3 == 0 {
                forged["request"]["kind"]["version"] = made_up.into();
            }
            reviewer.answer(forged.to_string().as_bytes()).expect("a review");
        }
        let series: usize = registry.gather().iter().map(|family| family.get_metric().len()).sum();
        assert_eq!(series, 2, "one for each kind");
    }

    #[test]
    fn a_response_does_not_grow_with_its_object() {
        let route = json!({ "route": [{ "destination": { "host": "" } }] });
        let many = json!({ "hosts": ["a"], "http": vec![route; 5000] });
        let response = answer(&review("VirtualService", "CREATE", &many)).to_string();
        assert!(
            response.len() < 8000 && response.contains(" more; `meltemi check` shows all"),
            "{} bytes",
            response.len()
        );
    }

    #[test]
    fn deep_objects_are_rejected() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = review("VirtualService", "CREATE", &bad()).to_string().replace("\"soon\"", &deep);
        let (reviewer, _) = reviewer();
        let response = reviewer.answer(text.as_bytes());
        assert!(response.is_none_or(|response| response.contains("\"allowed\":false")));
    }
}

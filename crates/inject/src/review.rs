//! AdmissionReviews: the request out of a body, the response into one. `v1` and `v1beta1` are answered in their own version.

use data_encoding::BASE64;
use serde_json::{Value as Json, json};

use crate::injection::{Injection, InjectionOutcome};

const GROUP: &str = "admission.k8s.io/";

/// A review that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    pub api_version: String,
    pub uid: String,
    pub namespace: String,
    pub object: Json,
}

impl Review {
    /// `Err`: the text by which the review is refused.
    pub fn parse(body: &[u8]) -> Result<Review, String> {
        let mut review: Json = serde_json::from_slice(body)
            .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
        let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        let known = matches!(api_version.strip_prefix(GROUP), Some("v1" | "v1beta1"));
        if !known || kind != "AdmissionReview" {
            let what = format!("no kind {kind:?} is registered for version {api_version:?}");
            return Err(format!("{what}; send an AdmissionReview of {GROUP}v1 or v1beta1"));
        }
        let request = &mut review["request"];
        if !request.is_object() {
            return Err("the AdmissionReview has no request".to_owned());
        }
        let (uid, namespace) = (text(&request["uid"]), text(&request["namespace"]));
        Ok(Review { api_version, uid, namespace, object: request["object"].take() })
    }

    /// The response to this review.
    pub fn response(&self, injection: &Injection) -> Json {
        let response = match &injection.outcome {
            Ok(InjectionOutcome::Skipped(_)) => json!({ "uid": self.uid, "allowed": true }),
            Ok(InjectionOutcome::Injected { patch, .. }) => {
                let mut response = json!({ "uid": self.uid, "allowed": true, "patchType": "JSONPatch" });
                response["patch"] = BASE64.encode(patch.as_bytes()).into();
                response
            }
            Err(message) => rejection(&self.uid, message),
        };
        // `json!` would copy the patch.
        let mut review = json!({ "apiVersion": self.api_version, "kind": "AdmissionReview" });
        review["response"] = response;
        review
    }
}

/// The response to what is no review: without a version.
pub fn refused(message: &str) -> Json {
    json!({ "response": rejection("", message) })
}

fn rejection(uid: &str, message: &str) -> Json {
    json!({ "uid": uid, "allowed": false, "status": { "metadata": {}, "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_review_is_refused() {
        for (body, part) in [
            ("", "json parse error"),
            ("[]", "no kind \"\""),
            (r#"{"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview"}"#, "admission.k8s.io/v2"),
            (r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#, "no request"),
            (r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": null}"#, "no request"),
        ] {
            let error = Review::parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}

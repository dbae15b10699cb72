//! Requests for one object of an API server as JSON: get, create, replace, apply. Its content is not interpreted here.

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sources::kube::{JSON, KubeClient, RequestError, error_response};

/// The field manager of our writes.
pub(crate) const FIELD_MANAGER: &str = "meltemi";

/// `None`: it does not exist.
pub(crate) async fn get(client: &KubeClient, path: &str) -> Result<Option<Value>, RequestError> {
    match client.get(path, JSON).await {
        Ok(text) => parse_json(&text).map(Some),
        Err(RequestError::Status { code: 404, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(crate) async fn create(client: &KubeClient, path: &str, object: &Value) -> Result<Value, RequestError> {
    response_json(client.send(Method::POST, &with_field_manager(path), JSON, object.to_string().into()).await?)
}

/// Conditional on its resourceVersion.
pub(crate) async fn replace(client: &KubeClient, path: &str, object: &Value) -> Result<Value, RequestError> {
    response_json(client.send(Method::PUT, &with_field_manager(path), JSON, object.to_string().into()).await?)
}

/// Server-side apply of our fields.
pub(crate) async fn apply(client: &KubeClient, path: &str, object: &Value) -> Result<Value, RequestError> {
    apply_as(client, path, FIELD_MANAGER, object).await
}

/// As another field manager, which leaves the fields of the first alone. `T`: what is read of the object as it is then.
pub(crate) async fn apply_as<T: DeserializeOwned>(
    client: &KubeClient,
    path: &str,
    owner: &str,
    object: &Value,
) -> Result<T, RequestError> {
    const APPLY: &str = "application/apply-patch+yaml";
    let path = format!("{path}?fieldManager={owner}&force=true");
    response_json(client.send(Method::PATCH, &path, APPLY, object.to_string().into()).await?)
}

/// A JSON merge patch; `null` removes.
pub(crate) async fn merge(client: &KubeClient, path: &str, change: &Value) -> Result<Value, RequestError> {
    const MERGE: &str = "application/merge-patch+json";
    response_json(client.send(Method::PATCH, &with_field_manager(path), MERGE, change.to_string().into()).await?)
}

/// Succeeds also if it does not exist.
pub(crate) async fn delete(client: &KubeClient, path: &str) -> Result<(), RequestError> {
    let (code, text) = client.send(Method::DELETE, path, JSON, Vec::new()).await?;
    let done = code.is_success() || code == StatusCode::NOT_FOUND;
    if done { Ok(()) } else { Err(error_response(code, &http::HeaderMap::new(), &text)) }
}

/// HTTP 409.
pub(crate) fn is_conflict(failure: &RequestError) -> bool {
    matches!(failure, RequestError::Status { code: 409, .. })
}

fn with_field_manager(path: &str) -> String {
    format!("{path}?fieldManager={FIELD_MANAGER}")
}

fn response_json<T: DeserializeOwned>((code, text): (StatusCode, impl AsRef<[u8]>)) -> Result<T, RequestError> {
    if code.is_success() {
        parse_json(text.as_ref())
    } else {
        Err(error_response(code, &http::HeaderMap::new(), text.as_ref()))
    }
}

fn parse_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, RequestError> {
    serde_json::from_slice(text).map_err(|error| RequestError::Unreadable(error.to_string()))
}

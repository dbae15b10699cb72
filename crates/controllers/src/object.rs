//! One object of an API server as JSON: read, made, replaced, applied. What it means is not known here.

use http::{Method, StatusCode};
use serde_json::Value;
use sources::kube::{Client, Failure, JSON, refused};

/// Who the API server notes as the owner of what is written.
pub(crate) const OWNER: &str = "meltemi";

/// `None`: there is none.
pub(crate) async fn get(client: &Client, path: &str) -> Result<Option<Value>, Failure> {
    match client.get(path, JSON).await {
        Ok(text) => parsed(&text).map(Some),
        Err(Failure::Refused { code: 404, .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(crate) async fn create(client: &Client, path: &str, object: &Value) -> Result<Value, Failure> {
    sent(client.send(Method::POST, &owned(path), JSON, object.to_string().into()).await?)
}

/// Only if nobody has changed it since it was read: its resourceVersion says so.
pub(crate) async fn replace(client: &Client, path: &str, object: &Value) -> Result<Value, Failure> {
    sent(client.send(Method::PUT, &owned(path), JSON, object.to_string().into()).await?)
}

/// Makes our part of it as it is here, and leaves the others' alone.
pub(crate) async fn apply(client: &Client, path: &str, object: &Value) -> Result<Value, Failure> {
    apply_as(client, path, OWNER, object).await
}

/// The same as another owner, who does not take away what the first one owns.
pub(crate) async fn apply_as(client: &Client, path: &str, owner: &str, object: &Value) -> Result<Value, Failure> {
    const APPLY: &str = "application/apply-patch+yaml";
    let path = format!("{path}?fieldManager={owner}&force=true");
    sent(client.send(Method::PATCH, &path, APPLY, object.to_string().into()).await?)
}

/// Changes what is named here; `null` removes.
pub(crate) async fn merge(client: &Client, path: &str, change: &Value) -> Result<Value, Failure> {
    const MERGE: &str = "application/merge-patch+json";
    sent(client.send(Method::PATCH, &owned(path), MERGE, change.to_string().into()).await?)
}

/// Also one that is not there.
pub(crate) async fn delete(client: &Client, path: &str) -> Result<(), Failure> {
    let (code, text) = client.send(Method::DELETE, path, JSON, Vec::new()).await?;
    let done = code.is_success() || code == StatusCode::NOT_FOUND;
    if done { Ok(()) } else { Err(refused(code, &http::HeaderMap::new(), &text)) }
}

/// Somebody else was faster.
pub(crate) fn is_conflict(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code: 409, .. })
}

fn owned(path: &str) -> String {
    format!("{path}?fieldManager={OWNER}")
}

fn sent((code, text): (StatusCode, impl AsRef<[u8]>)) -> Result<Value, Failure> {
    if code.is_success() { parsed(text.as_ref()) } else { Err(refused(code, &http::HeaderMap::new(), text.as_ref())) }
}

fn parsed(text: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(text).map_err(|error| Failure::Unreadable(error.to_string()))
}

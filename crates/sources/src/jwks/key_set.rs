//! One fetch of the keys of a source: where they are, and whether they are a JSON Web Key Set.

use std::sync::Arc;
use std::time::Duration;

use config::jwks::KeySource;
use serde_json::{Map, Value};

use super::client::{self, JwksClient};

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Fetch(#[from] client::Error),
    #[error("its answer is not a JSON object")]
    NotJson(#[source] serde_json::Error),
    #[error("its OpenID configuration has no jwks_uri")]
    NoUri,
    #[error("its answer is not a JSON Web Key Set, like {{\"keys\": [{{..}}]}}")]
    NotKeySet,
    #[error("its answer is not text")]
    NotText,
    #[error("with its keys, those of namespace {namespace} exceed {limit} bytes; name fewer issuers there")]
    TooMuch { namespace: Arc<str>, limit: usize },
    #[error("internal error: the fetch panicked; report it with the log")]
    Panicked,
}

pub(super) async fn fetch(client: &JwksClient, source: &KeySource, timeout: Duration) -> Result<Arc<str>, FetchError> {
    let body = match source {
        KeySource::Uri(uri) => client.get(uri, timeout).await?,
        KeySource::Issuer(issuer) => {
            let discovery_url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
            let found = object(&client.get(&discovery_url, timeout).await?)?;
            let uri = found.get("jwks_uri").and_then(Value::as_str).ok_or(FetchError::NoUri)?;
            client.get(uri, timeout).await?
        }
    };
    let keys = object(&body)?;
    let is_set = keys.get("keys").and_then(Value::as_array).is_some_and(|keys| keys.iter().all(Value::is_object));
    if !is_set {
        return Err(FetchError::NotKeySet);
    }
    std::str::from_utf8(&body).map(Arc::from).map_err(|_| FetchError::NotText)
}

fn object(body: &[u8]) -> Result<Map<String, Value>, FetchError> {
    serde_json::from_slice(body).map_err(FetchError::NotJson)
}

/// The error with its causes.
pub(super) fn error_chain(failure: &FetchError) -> String {
    let mut text = failure.to_string();
    let mut error: &dyn std::error::Error = failure;
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text
}

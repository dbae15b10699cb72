//! Rate-limited requests to an API server, and their errors. Credentials come from a kubeconfig or from the pod's service account.
//! The meaning of responses is not known here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::encoded_page::{is_encoded, read_status};
use super::rate::RateLimiter;

/// The address of the API server, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiAccess {
    /// `None`: $KUBECONFIG or the user's default, else the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second of each kind of traffic; the burst is twice as much.
    pub rate: u32,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct KubeClient {
    access: ApiAccess,
    inner: Arc<Mutex<Inner>>,
    /// For display.
    pub(crate) url: Arc<str>,
    limiter: Arc<RateLimiter>,
}

struct Inner {
    client: kube::Client,
    created: Instant,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot read the kubeconfig {}: {source}", path.display())]
    Kubeconfig { path: PathBuf, source: kube::config::KubeconfigError },
    #[error(
        "found neither a kubeconfig nor the account of a pod; name a kubeconfig with --kubeconfig, or a folder of YAML with --config"
    )]
    None(#[source] kube::config::InferConfigError),
    #[error("cannot set up the connection to the API server: {0}")]
    Client(#[from] kube::Error),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No response, or an incomplete one.
    #[error("{0}")]
    Connection(String),
    /// A response with an error status.
    #[error("{code}: {message}")]
    Status { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    #[error("cannot decode the response: {0}")]
    Unreadable(String),
}

/// The Status object of an error response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

/// For the connection and the first byte of a response. A long list takes its time before that.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two chunks of a response that is not a watch.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Credentials are reloaded at most this often after a 401.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Of one response, in bytes: a page of the largest possible objects.
const MAX_RESPONSE: usize = 1 << 30;

impl KubeClient {
    pub async fn new(access: &ApiAccess) -> Result<KubeClient, AccessError> {
        let config = config(access).await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').into();
        let inner = Inner { client: kube::Client::try_from(config)?, created: Instant::now() };
        Ok(KubeClient { access: access.clone(), inner: Arc::new(Mutex::new(inner)), url, limiter: limiter(access) })
    }

    /// The same server, with a rate limiter of its own, so that this client's requests never wait behind those of others.
    /// Requests share no connection either: the client uses HTTP/1.1.
    pub fn with_own_rate_limit(&self) -> KubeClient {
        KubeClient { limiter: limiter(&self.access), ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests per second.
    pub fn rate(&self) -> u32 {
        self.access.rate
    }

    /// The whole response body.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Bytes, RequestError> {
        let (_, body) = self.open(path, accept).await?;
        read_body(body).await
    }

    /// Sends a JSON body, or none. Returns the response and its code, also for an error status.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, JSON);
        let request = if body.is_empty() { request } else { request.header(header::CONTENT_TYPE, content) };
        let request = request.body(Body::from(body)).map_err(|error| RequestError::Unreadable(error.to_string()))?;
        let (parts, body) = self.answer(request).await?.into_parts();
        Ok((parts.status, read_body(body).await?))
    }

    /// The head of a successful response, and its body as a stream.
    pub async fn open(&self, path: &str, accept: &str) -> Result<(HeaderMap, Body), RequestError> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty());
        let request = request.map_err(|error| RequestError::Unreadable(error.to_string()))?;
        let (parts, body) = self.answer(request).await?.into_parts();
        if parts.status.is_success() {
            return Ok((parts.headers, body));
        }
        let text = read_body(body).await.unwrap_or_default();
        Err(error_response(parts.status, &parts.headers, &text))
    }

    async fn answer(&self, request: Request<Body>) -> Result<http::Response<Body>, RequestError> {
        self.limiter.acquire().await;
        let client = self.inner().client.clone();
        match timeout(RESPONSE_TIMEOUT, client.send(request)).await {
            Ok(Ok(response)) => {
                if response.status() == StatusCode::UNAUTHORIZED {
                    self.reload_credentials().await;
                }
                Ok(response)
            }
            Ok(Err(error)) => {
                self.reload_credentials().await;
                Err(RequestError::Connection(chain(&error)))
            }
            Err(_) => Err(RequestError::Connection(format!("no answer within {} s", RESPONSE_TIMEOUT.as_secs()))),
        }
    }

    /// Reloads token, certificates and kubeconfig, which may have changed. The caller retries the request.
    async fn reload_credentials(&self) {
        if self.inner().created.elapsed() < MIN_RELOAD_INTERVAL {
            return;
        }
        let created = config(&self.access).await.map(kube::Client::try_from);
        if let Ok(Ok(client)) = created {
            *self.inner() = Inner { client, created: Instant::now() };
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn config(access: &ApiAccess) -> Result<kube::Config, AccessError> {
    let mut config = match &access.kubeconfig {
        Some(path) => {
            let failed = |source| AccessError::Kubeconfig { path: path.clone(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => kube::Config::infer().await.map_err(AccessError::None)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Retries are up to the callers, who know what the request was for.
    config.default_retry = false;
    Ok(config)
}

pub const JSON: &str = "application/json";

/// The error of a response with an error status.
pub fn error_response(code: StatusCode, headers: &HeaderMap, text: &[u8]) -> RequestError {
    let status = if is_encoded(text) { read_status(text).ok() } else { serde_json::from_slice(text).ok() };
    let status: Status = status.unwrap_or_default();
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let message = if status.message.is_empty() {
        code.canonical_reason().unwrap_or("no reason given").to_owned()
    } else {
        status.message
    };
    RequestError::Status {
        code: code.as_u16(),
        reason: status.reason,
        message,
        retry_after: seconds.map(Duration::from_secs),
    }
}

async fn read_body(mut body: Body) -> Result<Bytes, RequestError> {
    let mut read = BytesMut::new();
    loop {
        match timeout(CHUNK_TIMEOUT, body.frame()).await {
            Err(_) => return Err(RequestError::Connection(format!("nothing came for {} s", CHUNK_TIMEOUT.as_secs()))),
            Ok(None) => return Ok(read.freeze()),
            Ok(Some(Err(error))) => return Err(RequestError::Connection(chain(&error))),
            Ok(Some(Ok(frame))) => {
                let Ok(piece) = frame.into_data() else { continue };
                if read.len() + piece.len() > MAX_RESPONSE {
                    return Err(RequestError::Unreadable(format!("longer than {MAX_RESPONSE} bytes")));
                }
                read.extend_from_slice(&piece);
            }
        }
    }
}

/// The error with all of its sources.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

fn limiter(access: &ApiAccess) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(access.rate, access.rate.saturating_mul(2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::encoded_page::tests::enveloped;

    #[test]
    fn an_error_response_quotes_the_servers_status() {
        let text =
            br#"{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods is forbidden: cannot list"}"#;
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "7".parse().unwrap());
        let failure = error_response(StatusCode::FORBIDDEN, &headers, text);
        assert_eq!(failure.to_string(), "403: pods is forbidden: cannot list");
        let RequestError::Status { retry_after, .. } = failure else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
        assert_eq!(
            error_response(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>").to_string(),
            "502: Bad Gateway"
        );
        let encoded = enveloped(|out| out.text(3, "pods is forbidden"));
        let failure = error_response(StatusCode::FORBIDDEN, &HeaderMap::new(), &encoded);
        assert_eq!(failure.to_string(), "403: pods is forbidden");
    }
}

//! Requests to an API server, rate limited, and what may go wrong with them. Who we are and whom we trust comes from a kubeconfig or from
//! the pod's own account; what the answers mean is not known here.

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

use super::rate::RateLimiter;

/// Where the API server is, and as whom to speak to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `None`: $KUBECONFIG or the user's own, else the account of the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second of each kind of traffic, and twice as many at once.
    pub rate: u32,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    access: Access,
    inner: Arc<Mutex<Inner>>,
    /// For people.
    pub(crate) url: Arc<str>,
    limiter: Arc<RateLimiter>,
}

struct Inner {
    client: kube::Client,
    made: Instant,
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

/// Why a request did not bring what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No answer, or one that broke off.
    #[error("{0}")]
    Connection(String),
    /// An answer that is no success.
    #[error("{code}: {message}")]
    Refused { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    #[error("an answer cannot be read: {0}")]
    Unreadable(String),
}

/// What an API server says instead of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

/// To connect and to get the first byte of an answer. A long list takes its time before that.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two pieces of an answer that is not a watch.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// After a refusal it is looked at most this often who we are.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);
/// Of one answer, in bytes: a page of the largest objects there can be.
const LONGEST: usize = 1 << 30;

impl Client {
    pub async fn new(access: &Access) -> Result<Client, AccessError> {
        let config = config(access).await?;
        let url = config.cluster_url.to_string().trim_end_matches('/').into();
        let inner = Inner { client: kube::Client::try_from(config)?, made: Instant::now() };
        Ok(Client { access: access.clone(), inner: Arc::new(Mutex::new(inner)), url, limiter: limiter(access) })
    }

    /// The same server, with a rate limiter of its own: however many requests wait there, none of this client's waits for them.
    /// Requests share no connection either: the client speaks HTTP/1.1.
    pub fn with_own_rate_limit(&self) -> Client {
        Client { limiter: limiter(&self.access), ..self.clone() }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests per second.
    pub fn rate(&self) -> u32 {
        self.access.rate
    }

    /// The whole answer.
    pub async fn get(&self, path: &str, accept: &str) -> Result<Bytes, Failure> {
        let (_, body) = self.open(path, accept).await?;
        whole(body).await
    }

    /// Sends a body of JSON, or none. The answer and its code, also where that is no success.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, JSON);
        let request = if body.is_empty() { request } else { request.header(header::CONTENT_TYPE, content) };
        let request = request.body(Body::from(body)).map_err(|error| Failure::Unreadable(error.to_string()))?;
        let (parts, body) = self.answer(request).await?.into_parts();
        Ok((parts.status, whole(body).await?))
    }

    /// The head of a successful answer, and its body to be read piece by piece.
    pub async fn open(&self, path: &str, accept: &str) -> Result<(HeaderMap, Body), Failure> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty());
        let request = request.map_err(|error| Failure::Unreadable(error.to_string()))?;
        let (parts, body) = self.answer(request).await?.into_parts();
        if parts.status.is_success() {
            return Ok((parts.headers, body));
        }
        let text = whole(body).await.unwrap_or_default();
        Err(refused(parts.status, &parts.headers, &text))
    }

    async fn answer(&self, request: Request<Body>) -> Result<http::Response<Body>, Failure> {
        self.limiter.acquire().await;
        let client = self.inner().client.clone();
        match timeout(PATIENCE, client.send(request)).await {
            Ok(Ok(response)) => {
                if response.status() == StatusCode::UNAUTHORIZED {
                    self.introduce_anew().await;
                }
                Ok(response)
            }
            Ok(Err(error)) => {
                self.introduce_anew().await;
                Err(Failure::Connection(chain(&error)))
            }
            Err(_) => Err(Failure::Connection(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    /// Token, certificates and kubeconfig are read again: they may have changed since. The request itself is tried again by whoever made it.
    async fn introduce_anew(&self) {
        if self.inner().made.elapsed() < SHORTEST_LIFE {
            return;
        }
        let made = config(&self.access).await.map(kube::Client::try_from);
        if let Ok(Ok(client)) = made {
            *self.inner() = Inner { client, made: Instant::now() };
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn config(access: &Access) -> Result<kube::Config, AccessError> {
    let mut config = match &access.kubeconfig {
        Some(path) => {
            let failed = |source| AccessError::Kubeconfig { path: path.clone(), source };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => kube::Config::infer().await.map_err(AccessError::None)?,
    };
    config.connect_timeout = Some(CONNECT_PATIENCE);
    // When to try again is decided where it is known what was asked for.
    config.default_retry = false;
    Ok(config)
}

pub const JSON: &str = "application/json";

/// The answer that a failed request got.
pub fn refused(code: StatusCode, headers: &HeaderMap, text: &[u8]) -> Failure {
    let status: Status = serde_json::from_slice(text).unwrap_or_default();
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let message = if status.message.is_empty() {
        code.canonical_reason().unwrap_or("no reason given").to_owned()
    } else {
        status.message
    };
    Failure::Refused {
        code: code.as_u16(),
        reason: status.reason,
        message,
        retry_after: seconds.map(Duration::from_secs),
    }
}

async fn whole(mut body: Body) -> Result<Bytes, Failure> {
    let mut read = BytesMut::new();
    loop {
        match timeout(PIECE_PATIENCE, body.frame()).await {
            Err(_) => return Err(Failure::Connection(format!("nothing came for {} s", PIECE_PATIENCE.as_secs()))),
            Ok(None) => return Ok(read.freeze()),
            Ok(Some(Err(error))) => return Err(Failure::Connection(chain(&error))),
            Ok(Some(Ok(frame))) => {
                let Ok(piece) = frame.into_data() else { continue };
                if read.len() + piece.len() > LONGEST {
                    return Err(Failure::Unreadable(format!("longer than {LONGEST} bytes")));
                }
                read.extend_from_slice(&piece);
            }
        }
    }
}

/// The error with all that it came from.
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

fn limiter(access: &Access) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(access.rate, access.rate.saturating_mul(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_server_said() {
        let text =
            br#"{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods is forbidden: cannot list"}"#;
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "7".parse().unwrap());
        let failure = refused(StatusCode::FORBIDDEN, &headers, text);
        assert_eq!(failure.to_string(), "403: pods is forbidden: cannot list");
        let Failure::Refused { retry_after, .. } = failure else { panic!() };
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
        assert_eq!(refused(StatusCode::BAD_GATEWAY, &HeaderMap::new(), b"<html>").to_string(), "502: Bad Gateway");
    }
}

//! A running server as the commands ask it: one page over plain HTTP.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

/// A loaded server answers in well under a second; beyond this it hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ten thousand proxies need about 10 MB.
const ANSWER_BYTES: usize = 256 << 20;

/// What the page says. `what`: what it should hold, for the error.
pub(crate) async fn page<T: DeserializeOwned>(server: &str, path: &str, what: &str) -> Result<T> {
    asked(Method::GET, server, path, what).await
}

/// Asks the server to do something, and for what the page then says.
pub(crate) async fn changed<T: DeserializeOwned>(server: &str, path: &str, what: &str) -> Result<T> {
    asked(Method::POST, server, path, what).await
}

async fn asked<T: DeserializeOwned>(method: Method, server: &str, path: &str, what: &str) -> Result<T> {
    let body = tokio::time::timeout(PATIENCE, answer(method, server, path)).await;
    let body = body.unwrap_or_else(|_| bail!("{server} did not answer within {PATIENCE:?}"))?;
    serde_json::from_slice(&body)
        .with_context(|| format!("{server} answered something else than {what}; is it a meltemi?"))
}

/// A page that is no JSON.
pub(crate) async fn text(server: &str, path: &str) -> Result<String> {
    let body = tokio::time::timeout(PATIENCE, answer(Method::GET, server, path)).await;
    let body = body.unwrap_or_else(|_| bail!("{server} did not answer within {PATIENCE:?}"))?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

async fn answer(method: Method, server: &str, path: &str) -> Result<Bytes> {
    let url: Uri = format!("{}{path}", server.trim_end_matches('/'))
        .parse()
        .with_context(|| format!("--server {server:?} is not a URL; write it like http://127.0.0.1:15014"))?;
    if url.scheme_str() != Some("http") {
        bail!("--server {server:?} is not a plain HTTP URL; write it like http://127.0.0.1:15014");
    }
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = hyper::Request::builder().method(method).uri(url).body(Empty::new())?;
    let response = client.request(request).await.with_context(|| {
        format!("cannot reach {server}; is `meltemi serve` running, and is this its --monitoringAddr?")
    })?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES)
        .collect()
        .await
        .map_err(|error| anyhow::anyhow!("the answer of {server} broke off: {error}"))?
        .to_bytes();
    if !status.is_success() {
        bail!("{server} answered {status}: {}", String::from_utf8_lossy(&body).trim());
    }
    Ok(body)
}

/// Asks for something to happen.
pub(crate) async fn post(url: &str) -> Result<()> {
    let request = hyper::Request::post(url).body(Empty::<Bytes>::new())?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = tokio::time::timeout(PATIENCE, client.request(request)).await.context("no answer")??;
    if !response.status().is_success() {
        bail!("{url} answered {}", response.status());
    }
    Ok(())
}

/// Runs one command that asks a server.
pub(crate) fn ask<T>(asking: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(asking)
}

//! The client of the commands: one page of a running server over plain HTTP.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::{Method, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use settings::args::ServerArgs;

/// A busy server answers in well under a second; beyond this it hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Of a request with objects, which takes as long as a push of them.
const COMPUTATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Ten thousand proxies need about 10 MB.
const ANSWER_BYTES: usize = 256 << 20;

pub(crate) struct PageClient<'a> {
    url: &'a str,
    /// `None`: only what loopback may read.
    token: Option<Zeroizing<String>>,
}

/// A token of Kubernetes has about 1 KB.
const TOKEN_BYTES: u64 = 64 << 10;

impl<'a> PageClient<'a> {
    pub(crate) fn new(target: &'a ServerArgs) -> Result<PageClient<'a>> {
        let token = target.token.as_deref().map(token).transpose()?;
        if token.is_some() && !is_loopback(&target.server) {
            eprintln!("warning: the token travels to {} without encryption; a port-forward is safer", target.server);
        }
        Ok(PageClient { url: &target.server, token })
    }

    /// A server that is not Meltemi and gets no token.
    pub(crate) fn foreign(url: &'a str) -> PageClient<'a> {
        PageClient { url, token: None }
    }

    /// The content of a page. `what`: its content, for errors.
    pub(crate) async fn page<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<T> {
        self.request(Method::GET, path, Bytes::new(), what).await
    }

    /// Posts to a page, and returns its content.
    pub(crate) async fn post_page<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<T> {
        self.request(Method::POST, path, Bytes::new(), what).await
    }

    /// Posts objects as YAML to a page that computes something of them.
    pub(crate) async fn post_objects<T: DeserializeOwned>(&self, path: &str, objects: &str, what: &str) -> Result<T> {
        self.request(Method::POST, path, Bytes::copy_from_slice(objects.as_bytes()), what).await
    }

    async fn request<T: DeserializeOwned>(&self, method: Method, path: &str, sent: Bytes, what: &str) -> Result<T> {
        let (url, body) = (self.url, self.body(method, path, sent).await?);
        serde_json::from_slice(&body)
            .with_context(|| format!("{url} answered something else than {what}; is it a meltemi?"))
    }

    /// A page that is not JSON.
    pub(crate) async fn text(&self, method: Method, path: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.body(method, path, Bytes::new()).await?).into_owned())
    }

    async fn body(&self, method: Method, path: &str, sent: Bytes) -> Result<Bytes> {
        let limit = if sent.is_empty() { TIMEOUT } else { COMPUTATION_TIMEOUT };
        let answer = tokio::time::timeout(limit, self.answer(method, path, sent)).await;
        answer.unwrap_or_else(|_| bail!("{} did not answer within {limit:?}", self.url))
    }

    async fn answer(&self, method: Method, path: &str, sent: Bytes) -> Result<Bytes> {
        let server = self.url;
        let url: Uri = format!("{}{path}", server.trim_end_matches('/'))
            .parse()
            .with_context(|| format!("--server {server:?} is not a URL; write it like http://127.0.0.1:15014"))?;
        if url.scheme_str() != Some("http") {
            bail!("--server {server:?} is not a plain HTTP URL; write it like http://127.0.0.1:15014");
        }
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let mut request = hyper::Request::builder().uri(url);
        if method != Method::GET {
            request = request.header(admin::HEADER, admin::CONFIRMED);
        }
        if let Some(token) = &self.token {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.as_str())).context("--token: not a token")?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let response = client.request(request.method(method).body(Full::new(sent))?).await.with_context(|| {
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
}

/// `-`: from stdin.
pub(super) fn token(file: &Path) -> Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(TOKEN_BYTES).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(TOKEN_BYTES).read_to_string(&mut text))
    };
    read.with_context(|| format!("--token {}", file.display()))?;
    let token = Zeroizing::new(text.trim().to_owned());
    if token.is_empty() {
        bail!("--token {}: it is empty", file.display());
    }
    Ok(token)
}

fn is_loopback(server: &str) -> bool {
    let host = server.parse::<Uri>().ok().and_then(|url| Some(url.host()?.trim_matches(['[', ']']).to_owned()));
    host.is_some_and(|host| host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()))
}

/// Posts without a body.
pub(crate) async fn post(url: &str) -> Result<()> {
    let request = hyper::Request::post(url).body(Empty::<Bytes>::new())?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = tokio::time::timeout(TIMEOUT, client.request(request)).await.context("no answer")??;
    if !response.status().is_success() {
        bail!("{url} answered {}", response.status());
    }
    Ok(())
}

/// Runs the requests of one command.
pub(crate) fn run<T>(requests: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(requests)
}

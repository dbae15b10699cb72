//! The applications: servers that say their name, and misbehave where a path or a switch asks for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use testkit::netns::NamespaceRuntime;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A path under this fails twice, whichever server it comes to.
const FLAKY: &str = "/flaky/";

/// What all servers of a mesh have in common, readable from outside.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Host headers by server and path.
    seen: HashMap<(&'static str, String), Vec<String>>,
    broken: HashMap<&'static str, bool>,
}

impl Ledger {
    pub(crate) fn hosts(&self, server: &'static str, path: &str) -> Vec<String> {
        self.lock(|entries| entries.seen.get(&(server, path.to_owned())).cloned().unwrap_or_default())
    }

    pub(crate) fn seen(&self, path: &str) -> usize {
        self.lock(|entries| entries.seen.iter().filter(|((_, at), _)| at == path).map(|(_, hosts)| hosts.len()).sum())
    }

    pub(crate) fn set_broken(&self, server: &'static str, broken: bool) {
        self.lock(|entries| entries.broken.insert(server, broken));
    }

    /// Everything forgotten and mended.
    pub(crate) fn clear(&self) {
        self.lock(|entries| *entries = Entries::default());
    }

    fn lock<T>(&self, read: impl FnOnce(&mut Entries) -> T) -> T {
        read(&mut self.0.lock().expect("nothing panics while it holds the ledger"))
    }
}

/// A server that answers until it is dropped.
pub(crate) struct App {
    _stop: oneshot::Sender<()>,
}

impl App {
    /// Returns when it listens.
    pub(crate) async fn start(
        worker: &NamespaceRuntime,
        name: &'static str,
        port: u16,
        ledger: Arc<Ledger>,
    ) -> Result<App> {
        let listener = worker.spawn(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).await??;
        let (stop, stopped) = oneshot::channel();
        worker.spawn(async move {
            tokio::select! { () = accept(listener, name, ledger) => {}, _ = stopped => {} }
        });
        Ok(App { _stop: stop })
    }
}

async fn accept(listener: TcpListener, name: &'static str, ledger: Arc<Ledger>) {
    // Connections end with the server.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((io, _)) = listener.accept().await {
        let ledger = ledger.clone();
        let service = service_fn(move |request| answer(request, name, ledger.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    name: &'static str,
    ledger: Arc<Ledger>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
    let path = request.uri().path().to_owned();
    let broken = ledger.lock(|entries| {
        entries.seen.entry((name, path.clone())).or_default().push(host);
        entries.broken.get(name).copied().unwrap_or_default()
    });
    if path == "/slow" {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let mut response = Response::new(name.into());
    if broken || (path.starts_with(FLAKY) && ledger.seen(&path) < 3) {
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
    }
    Ok(response)
}

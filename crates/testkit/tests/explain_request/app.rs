//! The applications: servers that say who they are, and which path and host they were asked for.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use testkit::netns::NamespaceRuntime;
use tokio::net::TcpListener;

/// What the application saw.
pub(crate) const PATH: &str = "x-seen-path";
pub(crate) const HOST: &str = "x-seen-host";

/// Serves in the namespace until its runtime ends. Returns when it listens.
pub(crate) async fn start(worker: &NamespaceRuntime, name: &'static str, port: u16) -> Result<()> {
    let listener = worker.spawn(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).await??;
    worker.spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let service = service_fn(move |request| answer(request, name));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service));
        }
    });
    Ok(())
}

async fn answer(request: Request<Incoming>, name: &'static str) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(name.into());
    let path = request.uri().path_and_query().map_or("", |it| it.as_str());
    let seen = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("?"));
    let host = request.headers().get("host").cloned().unwrap_or(HeaderValue::from_static(""));
    response.headers_mut().insert(PATH, seen);
    response.headers_mut().insert(HOST, host);
    Ok(response)
}

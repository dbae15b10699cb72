//! The applications: each says its name, and in a header who the sidecar says has called.

use std::convert::Infallible;
use std::net::Ipv4Addr;

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

pub(crate) const CALLER: &str = "x-caller";

/// Listens when it returns, and ends with its namespace.
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
    if let Some(caller) = request.headers().get("x-forwarded-client-cert") {
        response.headers_mut().insert(CALLER, caller.clone());
    }
    Ok(response)
}

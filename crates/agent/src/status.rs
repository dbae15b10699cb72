//! The ports on which the kubelet asks the agent: whether Envoy is ready, and the probes and hooks of the application.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tracing::info;

use crate::probe::Probes;

const READY: &str = "/healthz/ready";
/// The statistics that say so, and nothing else.
const STATISTICS: &str = "/stats?filter=^(cluster_manager.cds.update_success|listener_manager.lds.update_success|listener_manager.workers_started|server.state)$";
const MAX_STATISTICS: usize = 64 << 10;
const ENVOY: Duration = Duration::from_secs(2);
/// Of the head of a request.
const HEAD: Duration = Duration::from_secs(10);

/// What the kubelet may ask.
#[derive(Debug)]
pub struct Status {
    /// Envoy's admin port, `host:port`.
    pub admin: String,
    /// Where the application listens.
    pub pod: IpAddr,
    pub probes: Probes,
}

impl Status {
    /// Serves on all addresses of the pod until dropped.
    pub async fn serve(self: Arc<Self>, port: u16) -> io::Result<()> {
        // Of both families, where the kernel has both.
        let listener = match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?,
        };
        info!(port, "status port");
        self.accept(listener).await
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let status = Arc::clone(&self);
            let service = service_fn(move |request| {
                let status = Arc::clone(&status);
                async move { Ok::<_, Infallible>(status.answer(&request).await) }
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD);
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() == Method::GET && request.uri().path() == READY {
            return match self.unready().await {
                None => Response::default(),
                Some(why) => with_status(StatusCode::SERVICE_UNAVAILABLE, &why),
            };
        }
        let answer = self.probes.answer(self.pod, request).await;
        answer.unwrap_or_else(|| with_status(StatusCode::NOT_FOUND, "the agent has nothing under this path"))
    }

    /// Why Envoy is not ready. `None`: it has its configuration and serves.
    async fn unready(&self) -> Option<String> {
        match timeout(ENVOY, self.statistics()).await {
            Ok(Ok(text)) => missing(&text).map(str::to_owned),
            Ok(Err(why)) => Some(format!("Envoy's admin port {}: {why}", self.admin)),
            Err(_) => Some(format!("Envoy's admin port {} did not answer within {} s", self.admin, ENVOY.as_secs())),
        }
    }

    async fn statistics(&self) -> Result<String, String> {
        let stream = TcpStream::connect(&self.admin).await.map_err(|error| error.to_string())?;
        let request = Request::get(STATISTICS).header("host", &self.admin).body(Full::new(Bytes::new()));
        let request = request.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let read = Limited::new(response.into_body(), MAX_STATISTICS).collect().await;
        driver.abort();
        let bytes = read.map_err(|error| error.to_string())?.to_bytes();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn with_status(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response
}

/// Envoy calls itself live also where its first configuration did not come in time, so that its updates are counted.
fn missing(statistics: &str) -> Option<&'static str> {
    let value = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    let updated = |name: &str| value(name).is_some_and(|count| count > 0);
    if !updated("cluster_manager.cds.update_success") {
        Some("Envoy has no clusters yet: does the control plane answer?")
    } else if !updated("listener_manager.lds.update_success") {
        Some("Envoy has no listeners yet: does the control plane answer?")
    } else if !updated("listener_manager.workers_started") {
        Some("Envoy's workers have not started yet")
    } else if value("server.state") != Some(0) {
        Some("Envoy is not live: it starts or drains")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIVE: &str = "cluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 2\n\
                        listener_manager.workers_started: 1\nserver.state: 0\n";

    #[test]
    fn envoy_is_ready_when_it_has_its_configuration_and_serves() {
        assert_eq!(missing(LIVE), None);
        for (from, to, why) in [
            ("cds.update_success: 1", "cds.update_success: 0", "no clusters"),
            ("lds.update_success: 2", "lds.update_success: 0", "no listeners"),
            ("workers_started: 1", "workers_started: 0", "workers"),
            ("server.state: 0", "server.state: 1", "drains"),
        ] {
            assert!(missing(&LIVE.replace(from, to)).unwrap().contains(why));
        }
        assert!(missing("").is_some());
    }

    /// Status and body.
    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_kubelet_hears_whether_envoy_is_ready_and_why_not() {
        let envoy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = envoy.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            for text in [LIVE, "server.state: 2\n"] {
                let (mut stream, _) = envoy.accept().await.unwrap();
                let read = stream.read(&mut [0; 4096]).await.unwrap();
                assert!(read > 0);
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let status = Arc::new(Status { admin, pod: Ipv4Addr::LOCALHOST.into(), probes: Probes::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(status.accept(listener));
        assert!(ask(address, READY).await.starts_with("HTTP/1.1 200 "));
        let unready = ask(address, READY).await;
        assert!(unready.starts_with("HTTP/1.1 503 ") && unready.contains("no clusters"), "{unready}");
        let gone = ask(address, READY).await;
        assert!(gone.starts_with("HTTP/1.1 503 ") && gone.contains("admin port"), "{gone}");
        assert!(ask(address, "/app-health/app/readyz").await.starts_with("HTTP/1.1 404 "));
    }
}

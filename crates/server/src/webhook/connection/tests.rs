//! The port as an API server sees it: each protocol that it may offer, and requests that it does not finish.

use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use axum::body::Body;
use ca::{Authority, ClientVerifier, KeyType, PrivateKey, RootOptions, ServingCertificate};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::{MAX_BODY, ValidationMetrics, router};
use super::*;

/// Wide enough for a busy machine.
const SOON: Duration = Duration::from_secs(20);

struct Port {
    address: SocketAddr,
    root: ca::Certificate,
}

impl Port {
    /// With the certificate and the settings of a secure port.
    async fn open(limits: HttpLimits) -> Port {
        Port::open_for(limits, None).await
    }

    /// For clients with a certificate of these roots.
    async fn open_for(limits: HttpLimits, allowed: Option<&[ca::Certificate]>) -> Port {
        let now = SystemTime::now();
        let options = RootOptions { key: KeyType::P256, lifetime: SOON * 100, organization: "cluster.local".into() };
        let (key, root) = options.generate(now).unwrap();
        let authority = Authority::new(&key, vec![root.clone()], vec![root.clone()], now).unwrap();
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let chain = authority.serving(&key, &["istiod.istio-system.svc".to_owned()], SOON * 10, now).unwrap();
        let clients = ClientVerifier::new(std::slice::from_ref(&root)).unwrap();
        let secure = ca::server_config(ServingCertificate::new(chain, &key).unwrap(), clients).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = ValidationMetrics::register(&xds::Register::new(prometheus::Registry::new())).unwrap();
        tokio::spawn(serve(listener.into(), acceptor(&secure.into(), allowed).unwrap(), router(counts, None), limits));
        Port { address, root }
    }

    async fn connect(&self, offered: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(self.address).await?).await
    }
}

/// An AdmissionReview of a VirtualService that is rejected.
fn review() -> Request<Full<Bytes>> {
    let spec =
        json!({ "hosts": ["a"], "http": [{ "timeout": "soon", "route": [{ "destination": { "host": "a" } }] }] });
    let kind = json!({ "group": "networking.istio.io", "version": "v1", "kind": "VirtualService" });
    let object = json!({ "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": { "name": "a" }, "spec": spec });
    let request = json!({ "uid": "u", "operation": "CREATE", "kind": kind, "object": object });
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    request_with(review.to_string().into())
}

fn request_with(body: Bytes) -> Request<Full<Bytes>> {
    let request = Request::post("https://istiod.istio-system.svc/validate").header("host", "istiod.istio-system.svc");
    request.header("content-type", "application/json").body(Full::new(body)).unwrap()
}

async fn is_rejected(response: Response<hyper::body::Incoming>) -> bool {
    let body = Body::new(response.into_body()).collect().await.unwrap().to_bytes();
    serde_json::from_slice::<Value>(&body).unwrap()["response"]["allowed"] == false
}

/// With fewer connections than requests the oldest lost their places, and creations of pods failed.
#[tokio::test]
async fn an_api_server_may_have_200_requests_in_flight() {
    let port = Arc::new(Port::open(LIMITS).await);
    let mut clients = Vec::new();
    for _ in 0..200 {
        let (client, driver) = http1::handshake(TokioIo::new(port.connect(&[HTTP1]).await.unwrap())).await.unwrap();
        tokio::spawn(driver);
        clients.push(client);
    }
    let reviews = clients
        .into_iter()
        .map(|mut client| tokio::spawn(async move { is_rejected(client.send_request(review()).await.unwrap()).await }));
    for answered in reviews.collect::<Vec<_>>() {
        assert!(answered.await.unwrap());
    }
}

#[tokio::test]
async fn an_api_server_may_offer_either_protocol_both_or_none() {
    let port = Port::open(LIMITS).await;
    for (offered, chosen) in [
        (&[HTTP1][..], Some(HTTP1)),
        (&[H2], Some(H2)),
        (&[H2, HTTP1], Some(H2)),
        (&[HTTP1, H2], Some(H2)),
        (&[b"spdy/3", HTTP1], Some(HTTP1)),
        (&[], None),
    ] {
        let stream = port.connect(offered).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen, "{offered:?}");
        let io = TokioIo::new(stream);
        let rejected = if chosen == Some(H2) {
            let (mut client, driver) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(driver);
            is_rejected(client.send_request(review()).await.unwrap()).await
        } else {
            let (mut client, driver) = http1::handshake(io).await.unwrap();
            tokio::spawn(driver);
            // Twice on one connection.
            let first = is_rejected(client.send_request(review()).await.unwrap()).await;
            client.ready().await.unwrap();
            first && is_rejected(client.send_request(review()).await.unwrap()).await
        };
        assert!(rejected, "{offered:?}");
    }
    assert!(port.connect(&[b"spdy/3"]).await.is_err(), "no protocol in common");
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let limits = HttpLimits { idle: Duration::from_millis(300), head: Duration::from_millis(600), ..LIMITS };
    let port = Port::open(limits).await;
    // One sends nothing, the other one request.
    let mut silent = port.connect(&[HTTP1]).await.unwrap();
    let io = TokioIo::new(port.connect(&[H2]).await.unwrap());
    let (mut client, driver) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let driver = tokio::spawn(driver);
    assert!(is_rejected(client.send_request(review()).await.unwrap()).await);
    timeout(SOON, driver).await.expect("an idle connection of HTTP/2 is closed").unwrap().ok();
    let mut rest = Vec::new();
    timeout(SOON, silent.read_to_end(&mut rest)).await.expect("a silent one is closed").ok();
}

#[tokio::test]
async fn an_incomplete_request_times_out() {
    let port = Port::open(HttpLimits { request: Duration::from_millis(300), ..LIMITS }).await;
    let mut stream = port.connect(&[HTTP1]).await.unwrap();
    let began = Instant::now();
    stream.write_all(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let mut answer = [0; 12];
    timeout(SOON, stream.read_exact(&mut answer)).await.expect("it is not waited for").unwrap();
    assert_eq!((&answer, began.elapsed() >= Duration::from_millis(300)), (b"HTTP/1.1 408", true));
}

#[tokio::test]
async fn a_body_over_3_mib_is_rejected() {
    let port = Port::open(LIMITS).await;
    let io = TokioIo::new(port.connect(&[HTTP1]).await.unwrap());
    let (mut client, driver) = http1::handshake(io).await.unwrap();
    tokio::spawn(driver);
    let answer = client.send_request(request_with(vec![b' '; MAX_BODY + 1].into())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// What it stands for once it is inflated does not matter.
#[tokio::test]
async fn a_compressed_body_is_not_inflated() {
    let port = Port::open(LIMITS).await;
    let io = TokioIo::new(port.connect(&[HTTP1]).await.unwrap());
    let (mut client, driver) = http1::handshake(io).await.unwrap();
    tokio::spawn(driver);
    let gzip = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0; 1 << 16]].concat();
    let mut request = request_with(gzip.into());
    request.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
}

/// One request on a connection of its own, within the time that an API server has.
async fn is_served(port: &Port) -> bool {
    let io = TokioIo::new(port.connect(&[HTTP1]).await.unwrap());
    let (mut client, driver) = http1::handshake(io).await.unwrap();
    tokio::spawn(driver);
    is_rejected(timeout(SOON, client.send_request(review())).await.expect("in time").unwrap()).await
}

#[tokio::test]
async fn reviews_are_answered_beside_idle_sockets_and_half_sent_requests() {
    let port = Port::open(HttpLimits { connections: 8, connections_per_address: 4, ..LIMITS }).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(port.address).await.unwrap());
    }
    assert!(is_served(&port).await);
    let mut halves = Vec::new();
    for _ in 0..10 {
        let mut half = port.connect(&[HTTP1]).await.unwrap();
        half.write_all(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
        halves.push(half);
    }
    assert!(is_served(&port).await);
    let mut rest = Vec::new();
    timeout(SOON, halves[0].read_to_end(&mut rest)).await.expect("the oldest lost its place").ok();
}

/// The bodies of all connections together are limited; whoever came first loses its place.
#[tokio::test]
async fn incomplete_bodies_are_limited_in_total() {
    let port = Port::open(HttpLimits { held_bytes: 1 << 20, ..LIMITS }).await;
    let mut halves = Vec::new();
    for _ in 0..4 {
        let mut half = port.connect(&[HTTP1]).await.unwrap();
        half.write_all(b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000\r\n\r\n").await.unwrap();
        half.write_all(&vec![b' '; 700 << 10]).await.unwrap();
        halves.push(half);
    }
    for half in &mut halves[..2] {
        let mut rest = Vec::new();
        timeout(SOON, half.read_to_end(&mut rest)).await.expect("it lost its place").ok();
        assert!(rest.is_empty());
    }
    assert!(is_served(&port).await);
}

#[tokio::test]
async fn with_a_client_ca_others_are_rejected() {
    let options = RootOptions { key: KeyType::P256, lifetime: SOON * 100, organization: "cluster.local".into() };
    let (_, root) = options.generate(SystemTime::now()).unwrap();
    let port = Port::open_for(LIMITS, Some(&[root])).await;
    // In TLS 1.3 a client learns from its first read that its certificate is missing.
    let mut stream = port.connect(&[HTTP1]).await.unwrap();
    let mut rest = Vec::new();
    assert!(timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it is closed").is_err());
}

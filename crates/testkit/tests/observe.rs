//! A live Envoy tells of the traffic that it carries: lines in the configured format, spans at a collector. No redirection: the sidecar's
//! listeners bind real ports, so that nothing but an Envoy is needed.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::server::MeltemiServer;
use testkit::wait::eventually;
use testkit::{environment, port, say, skip};
use tokio::net::{TcpListener, TcpStream};

#[test]
fn requests_leave_lines_and_spans() {
    let Some(envoy) = environment::envoy() else {
        return skip("logs and traces of a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    run(&envoy).unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run(envoy: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (web, collector) = (App::start().await?, App::start().await?);
    let (port, lines) = (port::reserve()?, folder.path().join("lines"));
    let objects = folder.path().join("objects");
    std::fs::create_dir(&objects)?;
    std::fs::write(objects.join("mesh.yaml"), mesh(&lines, port, port::reserve()?, &web, &collector))?;
    let mut server = MeltemiServer::start(&objects)?;
    let proxy = CaseProxy::new(&json!({
        "name": "client-1", "namespace": "shop", "ip": "127.0.0.1", "labels": { "app": "client" },
        "metadata": { "INTERCEPTION_MODE": "NONE" },
    }))?;
    let bootstrap =
        Bootstrap { proxy: &proxy, ads: ServerAddress::Tcp(server.address), sds: folder.path().join("sds") };
    let mut proxy = Envoy::start(envoy, &[], &bootstrap)?;
    proxy.wait_live().await.with_context(|| server.log())?;
    for path in ["/cart?user=me", "/missing"] {
        call(port, path).await.with_context(|| proxy.log())?;
    }

    // Envoy keeps lines back for 10 s, and spans for 5 s.
    let mut line = String::new();
    let written = eventually("a line of the access log", async || {
        line = std::fs::read_to_string(&lines).unwrap_or_default();
        Ok(!line.is_empty())
    });
    written.await.with_context(|| proxy.log())?;
    let cluster = format!("outbound|{port}||web.example");
    ensure!(line == format!("GET /cart 200 {cluster}\n"), "the log has the lines {line:?}");

    eventually("spans", async || Ok(!collector.received().is_empty())).await.with_context(|| proxy.log())?;
    let (path, body) = collector.received().remove(0);
    ensure!(path == "POST /spans tenant=acme", "spans came by {path}");
    ensure!(
        body.contains(r#""aisle":"left""#) && body.contains(r#""istio.canonical_service""#),
        "spans without tags: {body}"
    );
    ensure!(
        web.received().iter().all(|(_, headers)| headers.contains("x-b3-traceid")),
        "the application did not receive its trace"
    );
    say("observe: a line in the configured format, spans with tags at a collector");
    Ok(())
}

/// Only answers that went well are logged.
fn mesh(lines: &Path, port: u16, spans: u16, web: &App, collector: &App) -> String {
    let entry = |name: &str, port: u16, target: u16| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: shop}}, spec: {{hosts: [{name}.example], resolution: STATIC, ports: [{{number: {port}, targetPort: {target}, name: http, protocol: HTTP}}], endpoints: [{{address: 127.0.0.1}}]}}}}"
        )
    };
    let config = json!({
        "extensionProviders": [
            { "name": "lines", "envoyFileAccessLog": {
                "path": lines,
                "logFormat": { "text": "%REQ(:METHOD)% %REQ_WITHOUT_QUERY(:PATH)% %RESPONSE_CODE% %UPSTREAM_CLUSTER_RAW%" },
            } },
            { "name": "spans", "zipkin": {
                "service": "spans.example", "port": spans, "path": "/spans", "headers": [{ "name": "tenant", "value": "acme" }],
            } },
        ],
    });
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio", "namespace": "istio-system" },
        "data": { "mesh": config.to_string() },
    });
    let telemetry = json!({
        "apiVersion": "telemetry.istio.io/v1", "kind": "Telemetry", "metadata": { "name": "all", "namespace": "istio-system" },
        "spec": {
            "accessLogging": [{ "providers": [{ "name": "lines" }], "filter": { "expression": "response.code < 400" } }],
            "tracing": [{
                "providers": [{ "name": "spans" }], "randomSamplingPercentage": 100,
                "customTags": { "aisle": { "literal": { "value": "left" } } },
            }],
        },
    });
    let entries = [entry("web", port, web.port), entry("spans", spans, collector.port)];
    [config.to_string(), telemetry.to_string()].into_iter().chain(entries).collect::<Vec<_>>().join("\n---\n")
}

async fn call(port: u16, path: &str) -> Result<()> {
    let io = TokioIo::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
    let (mut connection, driver) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(driver);
    let request = Request::get(path).header("host", "web.example").body(Empty::<Bytes>::new())?;
    connection.send_request(request).await?.into_body().collect().await?;
    Ok(())
}

/// An application or a collector: remembers what it hears, and finds everything but `/missing`.
struct App {
    port: u16,
    received: ReceivedRequests,
}

/// Method, path and tenant; headers and body.
type ReceivedRequests = Arc<Mutex<Vec<(String, String)>>>;

impl App {
    async fn start() -> Result<App> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let app = App { port: listener.local_addr()?.port(), received: ReceivedRequests::default() };
        let received = app.received.clone();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let received = received.clone();
                let answer = service_fn(move |request| answer(request, received.clone()));
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), answer));
            }
        });
        Ok(app)
    }

    fn received(&self) -> Vec<(String, String)> {
        self.received.lock().expect("nobody panics with it").clone()
    }
}

async fn answer(request: Request<Incoming>, received: ReceivedRequests) -> Result<Response<Full<Bytes>>, Infallible> {
    let tenant = request.headers().get("tenant").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let asked = format!("{} {} tenant={tenant}", request.method(), request.uri().path());
    let missing = request.uri().path() == "/missing";
    let headers = format!("{:?}", request.headers());
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let content = format!("{headers} {}", String::from_utf8_lossy(&body));
    received.lock().expect("nobody panics with it").push((asked, content));
    let status = if missing { 404 } else { 200 };
    Ok(Response::builder().status(status).body(Full::default()).expect("a status that exists"))
}

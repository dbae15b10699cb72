//! A live Envoy tells of the traffic that it carries: lines in the configured format, spans at a collector. No redirection: the sidecar's
//! listeners bind real ports, so that nothing but an Envoy is needed.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use testkit::envoy::{Address, Bootstrap, Envoy};
use testkit::parity::Asker;
use testkit::server::{self, Server};
use testkit::{place, say, skip};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Longer than Envoy keeps lines (10 s) and spans (5 s) back, on a machine that is busy with something else.
const TOLD: Duration = Duration::from_secs(60);

#[test]
fn requests_leave_lines_and_spans() {
    let Some(envoy) = place::envoy() else {
        return skip("logs and traces of a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    run(&envoy).unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run(envoy: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (web, collector) = (App::start().await?, App::start().await?);
    let (port, lines) = (server::free_port()?, folder.path().join("lines"));
    let objects = folder.path().join("objects");
    std::fs::create_dir(&objects)?;
    std::fs::write(objects.join("mesh.yaml"), mesh(&lines, port, server::free_port()?, &web, &collector))?;
    let mut server = Server::start(&objects)?;
    let asker = Asker::new(&json!({
        "name": "client-1", "namespace": "shop", "ip": "127.0.0.1", "labels": { "app": "client" },
        "metadata": { "INTERCEPTION_MODE": "NONE" },
    }))?;
    let bootstrap = Bootstrap { asker: &asker, ads: Address::Tcp(server.address), sds: folder.path().join("sds") };
    let mut proxy = Envoy::start(envoy, &[], &bootstrap)?;
    proxy.wait_live(TOLD).await.with_context(|| server.log())?;
    for path in ["/cart?user=me", "/missing"] {
        call(port, path).await.with_context(|| proxy.log())?;
    }

    let line = until(|| std::fs::read_to_string(&lines).ok().filter(|text| !text.is_empty())).await;
    let line = line.with_context(|| format!("no line was written\n{}", proxy.log()))?;
    let cluster = format!("outbound|{port}||web.example");
    ensure!(line == format!("GET /cart 200 {cluster}\n"), "the log has the lines {line:?}");

    let spans = until(|| collector.heard().into_iter().next()).await;
    let (path, body) = spans.with_context(|| format!("no span arrived\n{}", proxy.log()))?;
    ensure!(path == "POST /spans tenant=acme", "spans came by {path}");
    ensure!(
        body.contains(r#""shelf":"left""#) && body.contains(r#""istio.canonical_service""#),
        "spans without tags: {body}"
    );
    ensure!(
        web.heard().iter().all(|(_, headers)| headers.contains("x-b3-traceid")),
        "the application was not told of its trace"
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
                "customTags": { "shelf": { "literal": { "value": "left" } } },
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

async fn until<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let wait = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TOLD, wait).await.ok()
}

/// An application or a collector: remembers what it hears, and finds everything but `/missing`.
struct App {
    port: u16,
    heard: Heard,
}

/// Method, path and tenant; headers and body.
type Heard = Arc<Mutex<Vec<(String, String)>>>;

impl App {
    async fn start() -> Result<App> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let app = App { port: listener.local_addr()?.port(), heard: Heard::default() };
        let heard = app.heard.clone();
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let heard = heard.clone();
                let answer = service_fn(move |request| answer(request, heard.clone()));
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), answer));
            }
        });
        Ok(app)
    }

    fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().expect("nobody panics with it").clone()
    }
}

async fn answer(request: Request<Incoming>, heard: Heard) -> Result<Response<Full<Bytes>>, Infallible> {
    let tenant = request.headers().get("tenant").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let asked = format!("{} {} tenant={tenant}", request.method(), request.uri().path());
    let missing = request.uri().path() == "/missing";
    let headers = format!("{:?}", request.headers());
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let told = format!("{headers} {}", String::from_utf8_lossy(&body));
    heard.lock().expect("nobody panics with it").push((asked, told));
    let status = if missing { 404 } else { 200 };
    Ok(Response::builder().status(status).body(Full::default()).expect("a status that exists"))
}

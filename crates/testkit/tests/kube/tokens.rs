//! Bearer tokens that are junk, thousands of them: they cost the API server little, and nobody else anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::parity::CaseProxy;
use testkit::wait::{eventually, observe};
use testkit::{grpc, port};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

use super::access::{METHOD, secured};
use super::instance::Instance;
use super::{chart, namespace, read, requests, with_cluster};

const SPACE: &str = "junk";
const NAME: &str = "istiod.istio-system.svc";
const CSR: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-leader";
/// Ten times what it takes on two cores that have nothing else to do.
const CONNECTED: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 4;
/// Connected all the time.
const PROXIES: usize = 200;
/// At once on one connection: so many that whoever waited behind them would wait for longer than `CONNECTED`.
const CALLS: usize = 500;

/// Different each time: garbage, the head and claims of a valid token with another signature, the same by a key that nobody knows, and
/// by no named key.
fn junk(number: usize, valid: &str) -> Result<String> {
    let mut parts = valid.split('.').map(|part| BASE64_URL_SAFE_NO_PAD.decode(part));
    let mut part = || anyhow::Ok(serde_json::from_slice::<Value>(&parts.next().context("three parts")??)?);
    let (mut head, mut claims) = (part()?, part()?);
    claims["jti"] = number.to_string().into();
    match number % 4 {
        0 => return Ok(format!("junk-{number}")),
        1 => {}
        2 => head["kid"] = format!("key-{number}").into(),
        _ => drop(head.as_object_mut().and_then(|head| head.remove("kid"))),
    }
    let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    Ok(format!("{}.{}.{}", encoded(&head), encoded(&claims), BASE64_URL_SAFE_NO_PAD.encode([7; 64])))
}

/// What the flood has done so far.
struct Flood {
    /// Junk tokens, over all connections: MELTEMI_JUNK_TOKENS where figures are measured by hand.
    count: usize,
    sent: AtomicUsize,
    over: AtomicBool,
}

impl Flood {
    fn new() -> Arc<Flood> {
        let count = std::env::var("MELTEMI_JUNK_TOKENS").ok().and_then(|text| text.parse().ok()).unwrap_or(6_000);
        Arc::new(Flood { count, sent: AtomicUsize::new(0), over: AtomicBool::new(false) })
    }

    fn next(&self) -> Option<usize> {
        Some(self.sent.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < self.count)
    }

    fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed) >= self.count
    }
}

/// Streams and signing requests, many at a time on one connection, and on the next one when the server closes it.
async fn flood_secure(instance: &Instance, flood: &Arc<Flood>, valid: &str) -> Result<()> {
    while !flood.is_sent() {
        let io = TokioIo::new(secured(instance, NAME).await?);
        let (sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(driver);
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            calls.spawn(send_junk(sender.clone(), flood.clone(), valid.to_owned()));
        }
        while let Some(done) = calls.join_next().await {
            done??;
        }
    }
    Ok(())
}

async fn send_junk(mut sender: http2::SendRequest<Empty<Bytes>>, flood: Arc<Flood>, valid: String) -> Result<()> {
    while let Some(number) = flood.next() {
        let path = if number % 8 < 4 { METHOD } else { CSR };
        let request = Request::post(format!("http://{NAME}{path}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::AUTHORIZATION, format!("Bearer {}", junk(number, &valid)?))
            .body(Empty::<Bytes>::new())?;
        // Connections without a stream that was let in are closed after ten seconds.
        if sender.ready().await.is_err() || sender.send_request(request).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Debug pages, one after the other on a connection. Answers how many were given. Loopback needs a token where the Host is another's.
async fn flood_pages(at: SocketAddr, flood: &Arc<Flood>, valid: &str) -> Result<usize> {
    let io = TokioIo::new(TcpStream::connect(at).await?);
    let (mut sender, driver) = http1::handshake(io).await?;
    tokio::spawn(driver);
    for number in 0.. {
        if flood.over.load(Ordering::Relaxed) {
            return Ok(number);
        }
        let request = Request::get("/debug/syncz")
            .header(header::HOST, "meltemi")
            .header(header::AUTHORIZATION, format!("Bearer {}", junk(flood.count + number, valid)?))
            .body(Empty::<Bytes>::new())?;
        sender.ready().await?;
        let status = sender.send_request(request).await?.status();
        let expected = [StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE];
        ensure!(expected.contains(&status), "{status}");
    }
    Ok(0)
}

type Stream = (grpc::MessageSender, grpc::MessageReader);

/// How long a proxy with a token that nobody has seen takes to its first configuration.
async fn connected(instance: &Instance, api: &ApiWriter) -> Result<Duration> {
    let token = chart::token(api, SPACE, "web", Some("istio-ca")).await?;
    let began = Instant::now();
    open_stream(instance, &token).await?;
    Ok(began.elapsed())
}

async fn open_stream(instance: &Instance, token: &str) -> Result<Stream> {
    let entry = json!({ "name": "a", "namespace": SPACE, "ip": "10.7.7.1", "serviceAccount": "web" });
    let first = DeltaDiscoveryRequest {
        node: Some(CaseProxy::new(&entry)?.node()),
        type_url: CLUSTER.to_owned(),
        ..Default::default()
    };
    let answered = async {
        let io = secured(instance, NAME).await?;
        let (sender, mut reader) = grpc::call_as(io, NAME, METHOD, Some(token), &first).await?;
        reader.next::<DeltaDiscoveryResponse>().await?.context("the stream ended")?;
        Ok((sender, reader))
    };
    timeout(CONNECTED, answered).await.context("a valid proxy is not served in time")?
}

async fn transitions(api: &ApiWriter) -> (String, i64) {
    let spec = read(api, LEASE).await["spec"].clone();
    (spec["holderIdentity"].as_str().unwrap_or_default().to_owned(), spec["leaseTransitions"].as_i64().unwrap_or(-1))
}

/// 20,000 of them kept every proxy out for minutes, and the lease was lost.
#[test]
fn junk_tokens_keep_no_proxy_out_and_cost_no_lease() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", SPACE] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "web", "namespace": SPACE } });
        api.apply(&account).await?;
        let pages = port::reserve_address()?;
        let instance = Instance::named(cluster, "flooded", &[&format!("--monitoringAddr={pages}")], &[]).await?;
        eventually("it leads", async || Ok(transitions(&api).await.0 == "flooded")).await?;
        let (before, valid) = (transitions(&api).await, chart::token(&api, SPACE, "web", Some("istio-ca")).await?);
        let mut proxies = Vec::new();
        for _ in 0..PROXIES {
            proxies.push(open_stream(&instance, &valid).await?);
        }
        let reviews = async || requests(&api, &["resource=\"tokenreviews\""]).await;
        let (asked, memory) = (reviews().await?, instance.memory()?);

        let (flood, began) = (Flood::new(), Instant::now());
        let shared = Arc::new(instance);
        let mut senders = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (instance, flood, valid) = (shared.clone(), flood.clone(), valid.clone());
            senders.spawn(async move { flood_secure(&instance, &flood, &valid).await });
        }
        let debug = {
            let (flood, valid) = (flood.clone(), valid.clone());
            tokio::spawn(async move { flood_pages(pages, &flood, &valid).await })
        };
        let (mut connects, mut slowest) = (0, Duration::ZERO);
        while !senders.is_empty() || connects == 0 {
            slowest = slowest.max(connected(&shared, &api).await.with_context(|| shared.log())?);
            connects += 1;
            let now = transitions(&api).await;
            ensure!(now == before, "{before:?} became {now:?}");
            while let Some(done) = senders.try_join_next() {
                done??;
            }
        }
        // What is watched still arrives, and what the leader writes too.
        api.apply(&namespace("junk-after", &json!({}))).await?;
        let root = "/api/v1/namespaces/junk-after/configmaps/istio-ca-root-cert";
        eventually("a new namespace has the root", async || Ok(!read(&api, root).await.is_null())).await?;
        flood.over.store(true, Ordering::Relaxed);
        let given = debug.await??;
        slowest = slowest.max(connected(&shared, &api).await.with_context(|| shared.log())?);
        connects += 1;
        let took = began.elapsed();
        ensure!(given > 0, "no debug page was answered");

        // One token in four needs a review at most, and these are limited: a second at half the rate, and a burst.
        let asked = reviews().await? - asked;
        let most = f64::from(connects) + 80.0 + 40.0 * took.as_secs_f64();
        ensure!(asked <= most, "{asked} TokenReviews in {took:?}, at most {most}");
        let grown = shared.memory()?.saturating_sub(memory);
        let count = flood.count;
        eprintln!(
            "{count} junk tokens and {given} pages in {took:?}: {connects} connects, the slowest in {slowest:?}; {asked} TokenReviews; {grown} bytes more"
        );
        ensure!(grown < 64 << 20, "{grown} bytes more than before");
        // Longer than a lease lasts that nobody renews.
        observe(Duration::from_secs(16).saturating_sub(took)).await;
        let now = transitions(&api).await;
        ensure!(now == before, "{before:?} became {now:?}");
        Ok(())
    });
}

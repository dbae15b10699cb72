//! Delivery of changes by the built program: number and cause of pushes, and proxies that are gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use tempfile::TempDir;
use testkit::ads::AdsClient;
use testkit::grpc;
use testkit::wait::{DEADLINE, eventually};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

use crate::run::{SHOP, folder, run};
use crate::serve::{Server, node, put};

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const CART: &str = "outbound|80||cart.shop.svc.cluster.local";

/// The endpoints of the cart: three in a row.
fn slice(first: usize) -> String {
    let endpoints: Vec<String> = (first..first + 3).map(|host| format!("{{addresses: [10.0.1.{host}]}}")).collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: cart-1, namespace: shop, labels: \
         {{kubernetes.io/service-name: cart}}}}, ports: [{{name: http, port: 8080}}], endpoints: [{}]}}",
        endpoints.join(", ")
    )
}

/// Counts the load assignments that a proxy is sent, accepting each.
struct Counted {
    responses: Arc<AtomicUsize>,
    newest: watch::Receiver<Vec<u8>>,
}

impl Counted {
    async fn new(server: &Server) -> Counted {
        let io = TcpStream::connect(server.port("--grpcAddr")).await.expect("an open port");
        let first = DeltaDiscoveryRequest {
            node: Some(node()),
            type_url: ENDPOINTS.into(),
            resource_names_subscribe: vec![CART.into()],
            ..Default::default()
        };
        let (sender, mut reader) = grpc::call(io, "test", METHOD, &first).await.expect("a stream");
        let (responses, (newest, seen)) = (Arc::<AtomicUsize>::default(), watch::channel(Vec::new()));
        let counter = responses.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = reader.next::<DeltaDiscoveryResponse>().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let any = message.resources.first().and_then(|resource| resource.resource.clone());
                newest.send_replace(any.map(|any| any.value.to_vec()).unwrap_or_default());
                sender.send(&DeltaDiscoveryRequest {
                    type_url: message.type_url,
                    response_nonce: message.nonce,
                    ..Default::default()
                });
            }
        });
        Counted { responses, newest: seen }
    }

    /// Until the newest load assignment holds this address.
    async fn holds(&mut self, address: &str) {
        let found = |bytes: &Vec<u8>| bytes.windows(address.len()).any(|part| part == address.as_bytes());
        tokio::time::timeout(DEADLINE, self.newest.wait_for(found)).await.expect("in time").expect("connected");
    }
}

/// Replaces fifty pods and returns how many responses that was, and how long it took until the last.
async fn rollout(dir: &TempDir, server: &Server) -> (usize, Duration) {
    let mut proxy = Counted::new(server).await;
    proxy.holds("10.0.1.3").await;
    let (before, began) = (proxy.responses.load(Ordering::SeqCst), Instant::now());
    for step in 1..=50 {
        put(dir, "slice.yaml", &slice(step));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    proxy.holds("10.0.1.52").await;
    let took = began.elapsed();
    (proxy.responses.load(Ordering::SeqCst) - before, took)
}

/// The most that a rollout may be: five responses, and one more for every second that a starved machine drew it out.
fn most(took: Duration) -> usize {
    let drawn_out = took.saturating_sub(Duration::from_millis(1620));
    5 + usize::try_from(drawn_out.as_secs()).expect("a short time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_fifty_pods_is_at_most_five_responses() {
    let dir = folder(&[("shop.yaml", SHOP), ("slice.yaml", &slice(1))]);
    // A starved machine makes pauses of its own, which are no end of the rollout; the times of the default are tested where the clock is.
    let server = Server::start_with(&dir, &[], &[("PILOT_DEBOUNCE_AFTER", "2s")]);
    // After a pause of a second a rollout counts as another.
    let mut tries = Vec::new();
    while tries.len() < 5 && tries.iter().all(|&(responses, took)| responses > most(took)) {
        put(&dir, "slice.yaml", &slice(1));
        tokio::time::sleep(Duration::from_secs(4)).await;
        tries.push(rollout(&dir, &server).await);
    }
    let (responses, took) = tries[tries.len() - 1];
    assert!((1..=most(took)).contains(&responses), "responses, and the time that they took: {tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_istiod_a_rollout_of_fifty_pods_is_one_response() {
    let dir = folder(&[("shop.yaml", SHOP), ("slice.yaml", &slice(1))]);
    let env = [("PILOT_ENABLE_EDS_DEBOUNCE", "true"), ("PILOT_DEBOUNCE_AFTER", "2s")];
    let server = Server::start_with(&dir, &[], &env);
    let (responses, took) = rollout(&dir, &server).await;
    assert_eq!(responses, 1, "in {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_mesh_config_file_reaches_proxies() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let aside = folder(&[("mesh.yaml", "connectTimeout: 3s\n")]);
    let file = aside.path().join("mesh.yaml");
    let server = Server::start_with(&dir, &["--meshConfig", file.to_str().expect("UTF-8")], &[]);
    let mut proxy = AdsClient::new(server.port("--grpcAddr").parse().expect("an address"), node());
    let everything = BTreeSet::new();
    for (text, want) in [("", 3), ("connectTimeout: 7s\n", 7)] {
        if !text.is_empty() {
            put(&aside, "mesh.yaml", text);
        }
        let what = format!("a connect timeout of {want} s");
        let reached = eventually(&what, async || {
            let clusters = proxy.ask(CLUSTER, &everything, Duration::from_millis(100)).await?;
            // On a starved machine the first answer may take longer than was waited for.
            let Some(any) = clusters.get(CART) else { return Ok(false) };
            Ok(Cluster::decode(any.value.clone())?.connect_timeout.is_some_and(|timeout| timeout.seconds == want))
        });
        reached.await.expect("it reaches the proxy");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_shows_what_was_sent_and_why() {
    let dir = folder(&[("shop.yaml", SHOP), ("slice.yaml", &slice(1))]);
    let server = Server::start_with(&dir, &[], &[]);
    let mut proxy = Counted::new(&server).await;
    proxy.holds("10.0.1.3").await;
    put(&dir, "slice.yaml", &slice(2));
    proxy.holds("10.0.1.4").await;
    let url = format!("http://{}", server.port("--monitoringAddr"));
    let mut list = serde_json::Value::Null;
    let acknowledged = eventually("the push to be acknowledged", async || {
        list = serde_json::from_str(&run(&["pushes", "--server", &url, "--json"]).stdout)?;
        // A second event of the same file finds the proxy up to date.
        let is_it = |push: &serde_json::Value| {
            push["cause"] == "EndpointSlice shop/cart-1"
                && ["proxies", "sent", "acked", "done"].iter().all(|count| push[count] == 1)
        };
        Ok(list.as_array().is_some_and(|list| list.iter().any(is_it)))
    });
    acknowledged.await.unwrap_or_else(|error| panic!("{error:#}: {list:#}"));
    for part in ["informer_cache", "push_context", "delta", "serialization", "send"] {
        let bytes = server.metric(&format!("meltemi_memory_bytes{{part=\"{part}\"}}")).expect("it is shown");
        assert!(bytes.parse::<u64>().is_ok_and(|bytes| bytes > 0), "{part}: {bytes}");
    }
    for stage in ["informer_cache", "debounce", "push_context", "push_queue", "delta", "serialization", "send", "ack"] {
        let spent =
            server.metric(&format!("meltemi_stage_cpu_seconds_total{{stage=\"{stage}\"}}")).expect("it is shown");
        assert!(spent.parse::<f64>().is_ok_and(|spent| spent > 0.0), "{stage}: {spent}");
    }
    let (_, memory) = server.page("--monitoringAddr", "/debug/memory");
    let memory: serde_json::Value = serde_json::from_str(&memory).expect("JSON");
    assert_eq!((&memory["proxies"], &memory["services"], &memory["endpoints"]), (&1.into(), &1.into(), &3.into()));
    assert!(memory["bytesPerProxy"].as_u64() > Some(0) && memory["residentBytes"].as_u64() > Some(0), "{memory}");
    let table = run(&["pushes", "--server", &url]).stdout;
    assert!(table.starts_with("PUSH") && table.trim_end().ends_with("EndpointSlice shop/cart-1"), "{table}");
}

/// A proxy whose packets are dropped from some moment on: its socket stays open, and nobody reads or writes it.
async fn cuttable(address: String, mut cut: watch::Receiver<bool>) {
    let mut socket = TcpStream::connect(address).await.expect("an open port");
    let (io, mut other) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut other, &mut socket) => {}
            _ = cut.wait_for(|cut| *cut) => {}
        }
        std::future::pending::<()>().await;
    });
    let first = DeltaDiscoveryRequest { node: Some(node()), type_url: CLUSTER.into(), ..Default::default() };
    let (sender, mut reader) = grpc::call(io, "test", METHOD, &first).await.expect("a stream");
    reader.next::<DeltaDiscoveryResponse>().await.expect("a response");
    std::mem::forget((sender, reader));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_whose_packets_are_dropped_are_disconnected() {
    let dir = folder(&[("shop.yaml", SHOP)]);
    let server = Server::start_with(&dir, &["--keepaliveInterval=1s", "--keepaliveTimeout=1s"], &[]);
    let (cut, uncut) = watch::channel(false);
    let mut proxies = JoinSet::new();
    for _ in 0..100 {
        proxies.spawn(cuttable(server.port("--grpcAddr").to_owned(), uncut.clone()));
    }
    proxies.join_all().await;
    assert_eq!(server.metric("meltemi_xds_zombies_total").as_deref(), Some("0"));
    cut.send_replace(true);
    server.wait_for("meltemi_xds_zombies_total", "100");
    server.wait_for("pilot_destroy_time_seconds_count", "100");
    assert_eq!(server.page("--monitoringAddr", "/debug/proxies").1, "[]");
}

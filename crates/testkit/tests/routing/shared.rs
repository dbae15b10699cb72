//! The mesh that all scenarios share, and a scenario's turn in it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::fixture::SharedFixture;
use testkit::http_client::{self, HttpRequest, HttpResponse};
use testkit::netns::NamespaceRuntime;
use testkit::pod::{self, PodEnvironment, PodNetwork, TestPod};
use testkit::server::{self, MeltemiServer};
use testkit::test_ca::TestCa;
use testkit::wait::eventually;
use testkit::{environment, netns, skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::app::{App, Ledger};
use crate::rules::{MARK, Rules};

/// What the host outside the mesh calls itself.
pub(crate) const OUTSIDE: &str = "outside";
const OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 8, 8);
/// Of the service and of the host outside: what is unknown on a port of the mesh still passes its listener.
const PORT: u16 = 80;
const APP_PORT: u16 = 8080;

/// Name, version, address, zone of the servers. The client is in the first one's zone.
const SERVERS: [(&str, &str, &str, &str); 3] = [
    ("web-1", "v1", "10.78.0.11", "region1/zone-a"),
    ("web-2", "v2", "10.78.0.12", "region1/zone-b"),
    ("web-3", "v3", "10.78.0.13", "region2/zone-c"),
];

/// Enough to keep both cores busy, few enough to leave the order of answers meaningful.
const CONNECTIONS: usize = 8;

pub(crate) struct SharedMesh {
    // Pods go before the runtime that their helpers run on.
    state: Mutex<State>,
    ledger: Arc<Ledger>,
    pub(crate) runtime: Runtime,
}

struct State {
    client: TestPod,
    servers: BTreeMap<&'static str, Stand>,
    _outside: (App, NamespaceRuntime),
    _switch: PodNetwork,
    near: PodEnvironment,
    control_plane: MeltemiServer,
    objects: std::path::PathBuf,
    _folder: TempDir,
}

/// A pod with its application.
struct Stand {
    app: Option<App>,
    pod: TestPod,
}

/// The mesh of all scenarios. `None`: it cannot run here, which was reported.
pub(crate) fn shared() -> Option<Arc<SharedMesh>> {
    static MESH: SharedFixture<SharedMesh> = SharedFixture::new();
    MESH.get(|| {
        if let Some(why) = netns::missing() {
            skip(&format!("rules and real requests: {why}"));
            return None;
        }
        if environment::envoy().is_none() {
            skip("rules and real requests: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
            return None;
        }
        Some(SharedMesh::new().unwrap_or_else(|e| panic!("no mesh: {e:#}")))
    })
}

impl SharedMesh {
    fn new() -> Result<SharedMesh> {
        server::program()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let ledger = Arc::new(Ledger::default());
        let state = runtime.block_on(State::new(&ledger))?;
        Ok(SharedMesh { state: Mutex::new(state), ledger, runtime })
    }
}

impl State {
    async fn new(ledger: &Arc<Ledger>) -> Result<State> {
        let folder = tempfile::tempdir()?;
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects)?;
        std::fs::write(objects.join("mesh.yaml"), mesh())?;
        let control_plane = MeltemiServer::start(&objects)?;
        let near = PodEnvironment {
            folder: folder.path().to_owned(),
            authority: TestCa::new()?,
            ads: folder.path().join("ads"),
        };
        pod::forward(&near.ads, control_plane.address)?;
        let switch = PodNetwork::new(OUTSIDE_ADDRESS)?;
        let worker = switch.worker()?;
        let outside = App::start(&worker, OUTSIDE, PORT, ledger.clone()).await?;
        let mut client = TestPod::new(&switch, &near, &client_entry())?;
        client.start_sidecar(&near.ads).await?;
        let mut servers = BTreeMap::new();
        for server in SERVERS {
            let mut pod = TestPod::new(&switch, &near, &entry(server))?;
            let app = App::start(&pod.worker, server.0, APP_PORT, ledger.clone()).await?;
            pod.start_sidecar(&near.ads).await?;
            servers.insert(server.0, Stand { app: Some(app), pod });
        }
        let outside = (outside, worker);
        Ok(State { client, servers, _outside: outside, _switch: switch, near, control_plane, objects, _folder: folder })
    }
}

/// A scenario's time with the mesh. What it broke is mended when it ends.
pub(crate) struct Turn<'a> {
    state: MutexGuard<'a, State>,
    ledger: &'a Ledger,
    shared: &'a Arc<Ledger>,
}

impl<'a> Turn<'a> {
    pub(crate) fn take(mesh: &'a SharedMesh) -> Turn<'a> {
        let state = mesh.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        mesh.ledger.clear();
        Turn { state, ledger: &mesh.ledger, shared: &mesh.ledger }
    }

    /// Puts the rules into the folder and waits until answers come from them, and from all servers that they name.
    pub(crate) async fn apply(&mut self, rules: &Rules) -> Result<()> {
        let (aside, file) = (self.state.objects.join(".rules"), self.state.objects.join("rules.yaml"));
        std::fs::write(&aside, &rules.text)?;
        std::fs::rename(&aside, &file)?;
        let (mut good, mut last) = (0, None);
        let what = format!("the rules {} to hold", rules.name);
        let applied = eventually(&what, async || {
            let answer = self.one(self.ask("/wait")).await?;
            let marked = answer.headers.get(MARK).is_some_and(|mark| *mark == *rules.name);
            good = if marked && answer.status == 200 { good + 1 } else { 0 };
            last = Some(answer);
            Ok(good == 5)
        });
        applied.await.with_context(|| format!("{last:?}"))
    }

    pub(crate) fn ask(&self, path: &str) -> HttpRequest {
        HttpRequest::new((SERVICE, PORT).into(), "web.shop", path)
    }

    /// By its address, as an application would that knows nothing of the mesh.
    pub(crate) fn ask_outside(&self) -> HttpRequest {
        HttpRequest::new((OUTSIDE_ADDRESS, PORT).into(), "outside.example", "/")
    }

    /// Bytes that are no HTTP, to the host outside.
    pub(crate) async fn raw_outside(&self) -> Result<()> {
        let exchange = async {
            let mut io = TcpStream::connect((OUTSIDE_ADDRESS, PORT)).await?;
            io.write_all(b"\x16\x03\x01 neither HTTP nor TLS\r\n\r\n").await?;
            let mut answer = Vec::new();
            io.read_to_end(&mut answer).await?;
            ensure!(!answer.is_empty(), "closed without an answer");
            Ok(())
        };
        self.state.client.worker.spawn(exchange).await?
    }

    pub(crate) async fn one(&self, ask: HttpRequest) -> Result<HttpResponse> {
        self.state.client.worker.spawn(async move { http_client::send_one(&ask).await }).await?
    }

    pub(crate) async fn many(&self, ask: HttpRequest, count: usize) -> Result<Vec<HttpResponse>> {
        self.state.client.worker.spawn(async move { http_client::send_many(&ask, count, CONNECTIONS).await }).await?
    }

    /// The sum of the counters of the client's sidecar whose names match.
    pub(crate) async fn count(&self, pattern: &str) -> Result<u64> {
        self.state.client.count(pattern).await
    }

    /// Requests for this path that all servers have seen, and failed tries among them.
    pub(crate) fn seen(&self, path: &str) -> usize {
        self.ledger.seen(path)
    }

    pub(crate) fn seen_by(&self, server: &'static str, path: &str) -> usize {
        self.hosts(server, path).len()
    }

    pub(crate) fn hosts(&self, server: &'static str, path: &str) -> Vec<String> {
        self.ledger.hosts(server, path)
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        eventually(what, async || Ok(holds(self))).await
    }

    /// It answers 500 from now on, or no longer.
    pub(crate) fn set_broken(&self, server: &'static str, broken: bool) {
        self.ledger.set_broken(server, broken);
    }

    /// Application and sidecar are gone at once; the control plane is not notified.
    pub(crate) fn kill(&mut self, server: &str) {
        let server = self.state.servers.get_mut(server).expect("one of the servers");
        server.pod.stop_sidecar();
        server.app = None;
    }

    pub(crate) async fn revive(&mut self, name: &'static str) -> Result<()> {
        let ads = self.state.near.ads.clone();
        let server = self.state.servers.get_mut(name).context("one of the servers")?;
        server.app = Some(App::start(&server.pod.worker, name, APP_PORT, self.shared.clone()).await?);
        server.pod.start_sidecar(&ads).await
    }

    /// What the programs of the mesh complained about.
    pub(crate) fn logs(&mut self) -> String {
        let mut out = format!("meltemi:\n{}\nclient:\n{}\n", self.state.control_plane.log(), self.state.client.log());
        for (name, server) in &self.state.servers {
            let _ = writeln!(out, "{name}:\n{}", server.pod.log());
        }
        out
    }
}

fn client_entry() -> Value {
    json!({
        "name": "client-1", "namespace": "shop", "ip": "10.78.0.1", "serviceAccount": "client",
        "locality": SERVERS[0].3, "labels": { "app": "client", "security.istio.io/tlsMode": "istio" },
    })
}

fn entry((name, version, ip, zone): (&str, &str, &str, &str)) -> Value {
    json!({
        "name": name, "namespace": "shop", "ip": ip, "serviceAccount": "web", "locality": zone,
        "labels": { "app": "web", "version": version, "security.istio.io/tlsMode": "istio" },
    })
}

/// The objects that every scenario stands on.
fn mesh() -> String {
    let mut objects = vec![
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "shop" },
            "spec": {
                "clusterIP": SERVICE.to_string(), "selector": { "app": "web" },
                "ports": [{ "name": "http", "port": PORT, "targetPort": APP_PORT }],
            },
        }),
        pod::object(&client_entry(), "node-web-1"),
    ];
    let mut endpoints = Vec::new();
    for server in SERVERS {
        let (name, _, ip, zone) = server;
        let node = format!("node-{name}");
        let (region, zone) = zone.split_once('/').expect("written above");
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node,
                "labels": { "topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": zone },
            },
        }));
        objects.push(pod::object(&entry(server), &node));
        endpoints.push(json!({
            "addresses": [ip], "conditions": { "ready": true }, "nodeName": node,
            "targetRef": { "kind": "Pod", "name": name, "namespace": "shop" },
        }));
    }
    objects.push(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": "web-1", "namespace": "shop", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "name": "http", "port": APP_PORT, "protocol": "TCP" }], "endpoints": endpoints,
    }));
    objects.iter().map(|object| format!("{object:#}\n")).collect::<Vec<_>>().join("---\n")
}

//! The pods: a client, three servers, a gateway, each with a live Envoy in a namespace of its own, and a host outside.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use explain::{ExplainedProxy, ProxyResources};
use model::{Environment, Mesh, Proxy};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http_client::{self, HttpRequest, HttpResponse};
use testkit::netns::NamespaceRuntime;
use testkit::parity::CaseProxy;
use testkit::pod::{self, PodEnvironment, PodNetwork, TestPod};
use testkit::server::MeltemiServer;
use testkit::test_ca::TestCa;
use testkit::wait::eventually;

use crate::app;

pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(crate) const EDGE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const SERVERS: [(&str, &str, &str); 3] =
    [("web-1", "v1", "10.78.0.11"), ("web-2", "v2", "10.78.0.12"), ("web-3", "v3", "10.78.0.13")];
const APP_PORT: u16 = 8080;

/// A service, its address, and the servers that it selects.
const SERVICES: [(&str, &str, &[usize]); 5] = [
    ("web", "10.96.8.8", &[0, 1, 2]),
    ("one", "10.96.8.1", &[0]),
    ("two", "10.96.8.2", &[1]),
    ("three", "10.96.8.3", &[2]),
    ("idle", "10.96.8.9", &[]),
];

pub(crate) struct LiveMesh {
    client: TestPod,
    servers: Vec<TestPod>,
    edge: TestPod,
    outside: NamespaceRuntime,
    control_plane: MeltemiServer,
    objects: PathBuf,
    _switch: PodNetwork,
    _near: PodEnvironment,
    _folder: TempDir,
}

impl LiveMesh {
    pub(crate) async fn start() -> Result<LiveMesh> {
        let folder = tempfile::tempdir()?;
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects)?;
        std::fs::write(objects.join("mesh.yaml"), documents(&fixed()))?;
        let control_plane = MeltemiServer::start(&objects)?;
        let near = PodEnvironment {
            folder: folder.path().to_owned(),
            authority: TestCa::new()?,
            ads: folder.path().join("ads"),
        };
        pod::forward(&near.ads, control_plane.address)?;
        let switch = PodNetwork::new(OUTSIDE)?;
        let outside = switch.worker()?;
        app::start(&outside, "outside", 80).await?;
        let mut client = TestPod::new(&switch, &near, &client_entry())?;
        client.start_sidecar(&near.ads).await?;
        let mut edge = TestPod::new(&switch, &near, &edge_entry())?;
        let mut servers = Vec::new();
        for server in SERVERS {
            let mut pod = TestPod::new(&switch, &near, &server_entry(server))?;
            app::start(&pod.worker, server.0, APP_PORT).await?;
            pod.start_sidecar(&near.ads).await?;
            servers.push(pod);
        }
        edge.start_sidecar(&near.ads).await?;
        Ok(LiveMesh {
            client,
            servers,
            edge,
            outside,
            control_plane,
            objects,
            _switch: switch,
            _near: near,
            _folder: folder,
        })
    }

    /// Puts the objects of a round into the folder and waits until every proxy has them.
    pub(crate) async fn apply(&self, objects: &[Value], number: usize) -> Result<()> {
        let (aside, file) = (self.objects.join(".round"), self.objects.join("round.yaml"));
        std::fs::write(&aside, documents(objects))?;
        std::fs::rename(&aside, &file)?;
        let mut last = Vec::new();
        let applied = eventually("the round to be live", async || {
            last.clear();
            let mark = HttpRequest::new((address_of("one"), 80).into(), "one.shop", &format!("/mark-{number}"));
            last.push((250, self.send(false, mark).await?.status));
            for service in ["one", "two", "three"] {
                let deny = HttpRequest::new(
                    (address_of(service), 80).into(),
                    &format!("{service}.shop"),
                    &format!("/deny-{number}"),
                );
                last.push((403, self.send(false, deny).await?.status));
            }
            let deny = HttpRequest::new((EDGE, 8080).into(), "any", &format!("/deny-{number}"));
            // Its listener begins with the first round.
            last.push((403, self.send(true, deny).await.map(|it| it.status).unwrap_or_default()));
            Ok(last.iter().all(|(want, got)| got == want))
        });
        applied.await.with_context(|| format!("{last:?}"))
    }

    pub(crate) async fn send(&self, from_outside: bool, request: HttpRequest) -> Result<HttpResponse> {
        let worker = if from_outside { &self.outside } else { &self.client.worker };
        worker.spawn(async move { http_client::send_one(&request).await }).await?
    }

    pub(crate) fn logs(&mut self) -> String {
        let pods = [&self.client, &self.edge].into_iter().chain(&self.servers);
        let logs: Vec<String> = pods.map(TestPod::log).collect();
        format!("{}\n{}", self.control_plane.log(), logs.join("\n"))
    }
}

/// What the proxies have in this round, by address.
pub(crate) struct Served {
    pub(crate) client: ProxyResources,
    pub(crate) edge: ProxyResources,
    servers: Vec<Arc<ProxyResources>>,
}

impl Served {
    pub(crate) fn of(objects: &[Value]) -> Result<Served> {
        let text = documents(&[fixed(), objects.to_vec()].concat());
        let parsed = parse_documents("mesh.yaml", &text);
        ensure!(parsed.complete, "{:?}", parsed.diagnostics);
        let options = StoreOptions { pod_namespace: Environment::default().pod_namespace, mesh_config: None };
        let snapshot = Store::new(options).apply(parsed.objects.into_iter().map(Update::Put).collect());
        ensure!(snapshot.diagnostics.is_empty(), "{:?}", snapshot.diagnostics);
        let one = |entry: Value| resources(&snapshot, &entry);
        let servers = SERVERS.into_iter().map(|it| Ok(Arc::new(one(server_entry(it))?))).collect::<Result<_>>()?;
        Ok(Served { client: one(client_entry())?, edge: one(edge_entry())?, servers })
    }

    pub(crate) fn at(&self, ip: std::net::IpAddr) -> Option<Arc<ProxyResources>> {
        self.servers.iter().find(|it| it.proxy.address == Some(ip)).cloned()
    }
}

fn resources(snapshot: &Snapshot, entry: &Value) -> Result<ProxyResources> {
    let environment = Arc::new(Environment::default());
    let mut node = views::node_info(&CaseProxy::new(entry)?.node())?;
    // A stock Envoy lists its extensions, and Istio's are not among them.
    node.extensions = vec!["envoy.filters.http.router".to_owned()];
    let proxy = Arc::new(Proxy::new(&node)?);
    let mesh = Mesh::new(snapshot, &environment);
    let mut resources = ProxyResources::new(ExplainedProxy {
        name: format!("{}.shop", entry["name"].as_str().unwrap_or_default()),
        address: entry["ip"].as_str().and_then(|ip| ip.parse().ok()),
        identity: Some(format!(
            "spiffe://cluster.local/ns/shop/sa/{}",
            entry["serviceAccount"].as_str().unwrap_or_default()
        )),
        namespace: "shop".to_owned(),
        domain: "cluster.local".to_owned(),
    });
    for resource in views::render(&mesh, &mesh.place(&proxy)) {
        resources.add(&resource.name, &resource.any, resource.made_from.iter().map(ToString::to_string).collect())?;
    }
    Ok(resources)
}

pub(crate) fn address_of(service: &str) -> Ipv4Addr {
    let found = SERVICES.iter().find(|(name, ..)| *name == service);
    found.and_then(|(_, ip, _)| ip.parse().ok()).unwrap_or(OUTSIDE)
}

/// The server that an endpoint belongs to.
pub(crate) fn server_at(endpoint: &str) -> Option<&'static str> {
    SERVERS.iter().find(|(_, _, ip)| endpoint == format!("{ip}:{APP_PORT}")).map(|(name, ..)| *name)
}

fn client_entry() -> Value {
    json!({
        "name": "client-1", "namespace": "shop", "ip": CLIENT.to_string(), "serviceAccount": "client",
        "labels": {"app": "client", "security.istio.io/tlsMode": "istio"},
    })
}

fn edge_entry() -> Value {
    json!({
        "name": "edge-1", "namespace": "shop", "ip": EDGE.to_string(), "serviceAccount": "edge", "type": "router",
        "labels": {"app": "edge"},
    })
}

fn server_entry((name, version, ip): (&str, &str, &str)) -> Value {
    json!({
        "name": name, "namespace": "shop", "ip": ip, "serviceAccount": "web",
        "labels": {"app": "web", "version": version, "security.istio.io/tlsMode": "istio"},
    })
}

/// The objects of every round: the pods and their services.
fn fixed() -> Vec<Value> {
    let mut objects = vec![pod::object(&client_entry(), "node"), pod::object(&edge_entry(), "node")];
    objects.extend(SERVERS.map(|server| pod::object(&server_entry(server), "node")));
    let service = |name: &str, ip: &str, endpoints: Vec<Value>| {
        let port = json!({"name": "http", "port": 80, "targetPort": APP_PORT});
        [
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"clusterIP": ip, "selector": {"app": if name == "edge" { "edge" } else { "web" }}, "ports": [port]},
            }),
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "ports": [{"name": "http", "port": APP_PORT, "protocol": "TCP"}], "endpoints": endpoints,
            }),
        ]
    };
    let endpoint = |ip: &str, pod: &str| json!({"addresses": [ip], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": pod, "namespace": "shop"}});
    for (name, ip, servers) in SERVICES {
        objects.extend(service(name, ip, servers.iter().map(|at| endpoint(SERVERS[*at].2, SERVERS[*at].0)).collect()));
    }
    objects.extend(service("edge", "10.96.8.20", vec![endpoint(&EDGE.to_string(), "edge-1")]));
    objects
}

fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{object:#}\n")).collect::<Vec<_>>().join("---\n")
}

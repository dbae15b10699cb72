//! Istio's own agent against Meltemi: certificate, configuration, and an Envoy that takes both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::http_client::{self, HttpRequest};
use testkit::netns::{self, NamespaceRuntime, NetworkNamespace};
use testkit::process::Process;
use testkit::wait::eventually;
use testkit::{environment, server, skip};

#[tokio::test(flavor = "multi_thread")]
async fn pilot_agent_gets_certificate_and_configuration_and_its_envoy_is_live() {
    if let Some(why) = netns::missing() {
        return skip(&format!("Istio's agent: {why}"));
    }
    let (Some(agent), Some(envoy)) = (environment::pilot_agent(), environment::envoy()) else {
        return skip(
            "Istio's agent: no pilot-agent or no Envoy (`cargo xtask setup`, or set MELTEMI_REFERENCE and MELTEMI_ENVOY)",
        );
    };
    let mesh = Mesh::new().unwrap();
    let result = run(&mesh, &agent, &envoy).await;
    result.unwrap_or_else(|e| panic!("{e:#}\nserver:\n{}\nagent:\n{}", mesh.log("server"), mesh.log("agent")));
}

/// `agent`: the program, and the template of its bootstrap.
async fn run(mesh: &Mesh, (agent, template): &(PathBuf, PathBuf), envoy: &Path) -> Result<()> {
    let _server = mesh.serve().await?;
    let _agent = mesh.agent(agent, template, envoy)?;
    mesh.until("Envoy to be LIVE", async || mesh.page("/ready").await.is_ok_and(|it| it.contains("LIVE"))).await?;
    mesh.until("CDS and LDS to be acknowledged", async || mesh.acknowledged().await.unwrap_or(false)).await?;
    let rejected = mesh.page("/stats?filter=update_rejected").await?;
    ensure!(rejected.lines().all(|line| line.ends_with(": 0")), "Envoy rejected something: {rejected}");
    let certificate = mesh.certificate().await?;
    ensure!(certificate["subject_alt_names"][0]["uri"] == "spiffe://cluster.local/ns/shop/sa/cart", "{certificate}");
    // It asked for a day; the setting wins, and it tells what it got.
    ensure!(mesh.log("agent").contains("ttl=47h59m"), "PILOT_WORKLOAD_CERT_TTL=48h does not hold: {certificate}");
    let secrets = ["home/var/run/secrets/tokens/istio-token", "state/ca/ca-key.pem"].map(|name| mesh.path(name));
    let found = testkit::scan::leaks(&secrets, &["server.log", "agent.log"].map(|name| mesh.path(name)))?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}

const OBJECTS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.1
  selector: {app: cart}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}}
spec: {serviceAccountName: cart, containers: [{name: app}]}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}], conditions: [{type: Ready, status: \"True\"}]}
";

struct Mesh {
    folder: tempfile::TempDir,
    worker: NamespaceRuntime,
    /// The agent's ports are fixed: a network of its own keeps them apart from others.
    place: NetworkNamespace,
}

impl Mesh {
    fn new() -> Result<Mesh> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("objects"))?;
        fs::write(folder.path().join("objects/mesh.yaml"), OBJECTS)?;
        let place = NetworkNamespace::new("pilot-agent")?;
        Ok(Mesh { folder, worker: place.worker()?, place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    async fn serve(&self) -> Result<Process> {
        let mut command = self.place.command(server::program()?);
        command.args(["serve", "--grpcAddr=", "--httpAddr=", "--httpsAddr=", "--shutdownDuration=1s"]);
        command.args(["--secureGRPCAddr=127.0.0.1:15012", "--monitoringAddr=127.0.0.1:15014"]);
        command.arg("--config").arg(self.path("objects")).arg("--stateDir").arg(self.path("state"));
        command.env("PILOT_WORKLOAD_CERT_TTL", "48h");
        let server = Process::start(&mut command, &self.path("server.log"))?;
        self.until("the server", async || self.log("server").contains("ready")).await?;
        Ok(server)
    }

    /// All its paths are relative, as in Istio's image.
    fn agent(&self, agent: &Path, template: &Path, envoy: &Path) -> Result<Process> {
        let home = self.path("home");
        for folder in ["var/run/secrets/tokens", "var/run/secrets/istio", "etc/istio/proxy"] {
            fs::create_dir_all(home.join(folder))?;
        }
        let mut token = Command::new(server::program()?);
        token.args(["token", "create", "--service-account", "shop/cart", "--stateDir"]).arg(self.path("state"));
        fs::write(home.join("var/run/secrets/tokens/istio-token"), token.output()?.stdout)?;
        fs::copy(self.path("state/ca/ca-cert.pem"), home.join("var/run/secrets/istio/root-cert.pem"))?;
        let config = serde_json::json!({
            "discoveryAddress": "localhost:15012", "binaryPath": envoy, "proxyBootstrapTemplatePath": template,
            "configPath": home.join("etc/istio/proxy"), "concurrency": 1,
        });
        let mut command = self.place.command(agent);
        command.args(["proxy", "sidecar", "--domain", "shop.svc.cluster.local", "--proxyLogLevel=warning"]);
        command.current_dir(&home).env("PROXY_CONFIG", config.to_string());
        for (name, value) in [
            ("POD_NAME", "cart-1"),
            ("POD_NAMESPACE", "shop"),
            ("INSTANCE_IP", "127.0.0.1"),
            ("SERVICE_ACCOUNT", "cart"),
            ("ISTIO_META_CLUSTER_ID", "Kubernetes"),
            ("ISTIO_METAJSON_LABELS", "{\"app\":\"cart\"}"),
            ("CA_ADDR", "localhost:15012"),
        ] {
            command.env(name, value);
        }
        Process::start(&mut command, &self.path("agent.log"))
    }

    async fn page(&self, path: &str) -> Result<String> {
        let ask = HttpRequest::new(([127, 0, 0, 1], 15000).into(), "localhost", path);
        Ok(self.worker.spawn(async move { http_client::send_one(&ask).await }).await??.body)
    }

    async fn acknowledged(&self) -> Result<bool> {
        let ask = HttpRequest::new(([127, 0, 0, 1], 15014).into(), "localhost", "/debug/syncz");
        let page = self.worker.spawn(async move { http_client::send_one(&ask).await }).await??.body;
        let all: Value = serde_json::from_str(&page)?;
        let proxy = all.as_array().and_then(|all| all.first()).context("nobody is connected")?;
        let same = |sent: &str, acked: &str| proxy[sent].is_string() && proxy[sent] == proxy[acked];
        Ok(same("cluster_sent", "cluster_acked") && same("listener_sent", "listener_acked"))
    }

    async fn certificate(&self) -> Result<Value> {
        let page: Value = serde_json::from_str(&self.page("/certs").await?)?;
        let all = page["certificates"].as_array().context("no certificates")?.clone();
        all.into_iter().find_map(|each| each["cert_chain"].as_array()?.first().cloned()).context("no certificate")
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<()> {
        eventually(what, async || Ok(holds().await)).await
    }
}

//! The mesh that all scenarios share: a control plane with its authority, workloads with our agent, one without, one that is `openssl`.

use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::fixture::SharedFixture;
use testkit::http_client::{self, HttpRequest, HttpResponse};
use testkit::netns::{NamespaceRuntime, NetworkNamespace};
use testkit::pod::{self, PodNetwork, SIDECAR_GROUP};
use testkit::process::Process;
use testkit::test_ca::LeafCertificate;
use testkit::wait::{eventually, eventually_blocking};
use testkit::{environment, netns, server, skip};
use tokio::runtime::Runtime;

use crate::app;
use crate::scan;

pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 254);
pub(crate) const PORT: u16 = 15012;
pub(crate) const SERVER_NAME: &str = "istiod.istio-system.svc";
/// The shortest that leaves room for a failed attempt between renewal and end.
pub(crate) const LIFETIME: Duration = Duration::from_secs(20);
pub(crate) const APP_PORT: u16 = 8080;

/// How a workload gets its certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sidecar {
    Agent,
    /// The server makes it.
    Bare,
    /// There is no sidecar, but a certificate.
    None,
}

/// Name, namespace, service account, last part of the address, sidecar. The application is called like the account.
const PODS: [(&str, &str, &str, u8, Sidecar); 5] = [
    ("client-1", "shop", "client", 1, Sidecar::Agent),
    ("other-1", "bank", "other", 2, Sidecar::Agent),
    ("web-1", "shop", "web", 11, Sidecar::Agent),
    ("bare-1", "shop", "bare", 12, Sidecar::Bare),
    ("wire-1", "shop", "wire", 13, Sidecar::None),
];

pub(crate) struct SharedMesh {
    state: Mutex<State>,
    pub(crate) runtime: Runtime,
}

struct State {
    pods: Vec<Pod>,
    control_plane: Option<Process>,
    outside: NamespaceRuntime,
    switch: PodNetwork,
    /// Counts the sets of policies.
    policies: usize,
    /// Counts the control planes that ended.
    stops: usize,
    folder: TempDir,
}

struct Pod {
    name: &'static str,
    sidecar: Option<Process>,
    worker: NamespaceRuntime,
    place: NetworkNamespace,
}

/// The mesh of all scenarios. `None`: it cannot run here, which was reported.
pub(crate) fn shared() -> Option<Arc<SharedMesh>> {
    static MESH: SharedFixture<SharedMesh> = SharedFixture::new();
    MESH.get(|| {
        if let Some(why) = netns::missing() {
            skip(&format!("identity with real Envoys: {why}"));
            return None;
        }
        let Some(envoy) = environment::envoy() else {
            skip("identity with real Envoys: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
            return None;
        };
        Some(SharedMesh::new(&envoy).unwrap_or_else(|e| panic!("no mesh: {e:#}")))
    })
}

impl SharedMesh {
    fn new(envoy: &Path) -> Result<SharedMesh> {
        server::program()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let state = runtime.block_on(State::new(envoy))?;
        Ok(SharedMesh { state: Mutex::new(state), runtime })
    }
}

/// What all of them wrote down must hold no secret.
impl Drop for SharedMesh {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = scan::folder(state.folder.path()).expect("logs can be read");
        assert!(found.is_empty(), "secrets were written down: {found:?}");
    }
}

impl State {
    async fn new(envoy: &Path) -> Result<State> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        // Sidecars run with another group.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        fs::create_dir(path.join("objects"))?;
        fs::create_dir(path.join("logs"))?;
        fs::write(path.join("objects/mesh.yaml"), objects())?;
        let switch = PodNetwork::new(CONTROL_PLANE)?;
        let outside = switch.worker()?;
        let mut state = State { pods: Vec::new(), control_plane: None, outside, switch, policies: 0, stops: 0, folder };
        state.start_control_plane()?;
        for (name, namespace, account, last, sidecar) in PODS {
            let place = state.switch.place(name, Ipv4Addr::new(10, 79, 0, last))?;
            let worker = place.worker()?;
            let mut pod = Pod { name, sidecar: None, worker, place };
            if sidecar != Sidecar::None {
                pod::redirect(&pod.place)?;
                app::start(&pod.worker, account, APP_PORT).await?;
                state.token(namespace, account)?;
                state.start_sidecar(&mut pod, sidecar, (namespace, account), envoy)?;
            }
            state.pods.push(pod);
        }
        for pod in state.pods.iter().filter(|pod| pod.sidecar.is_some()) {
            state.until("a sidecar to be live", async || pod.is_live().await).await?;
        }
        Ok(state)
    }

    fn start_control_plane(&mut self) -> Result<()> {
        let mut command = self.switch.command(server::program()?);
        command.args(["serve", "--grpcAddr=", "--httpAddr=", "--httpsAddr=", "--monitoringAddr=127.0.0.1:15014"]);
        command.args(["--derive-endpoints", "--shutdownDuration=1s", "--log_output_level=default:debug"]);
        command.arg(format!("--secureGRPCAddr={CONTROL_PLANE}:{PORT}"));
        command.arg("--config").arg(self.path("objects")).arg("--stateDir").arg(self.path("state"));
        command.env("DEFAULT_WORKLOAD_CERT_TTL", format!("{}s", LIFETIME.as_secs()));
        command.env("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true");
        command.env("MELTEMI_WORKLOAD_SECRETS", "true").env("ROOT_CA_DIR", self.path("cacerts"));
        self.control_plane = Some(Process::start(&mut command, &self.log("server"))?);
        eventually_blocking("the control plane to open its port", || {
            Ok(fs::read_to_string(self.log("server"))?.contains(&format!(":{PORT}")))
        })
    }

    fn token(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let file = self.path(&format!("{namespace}-{account}.token"));
        let mut command = Command::new(server::program()?);
        command.args(["token", "create", "--service-account", &format!("{namespace}/{account}"), "--stateDir"]);
        let out = command.arg(self.path("state")).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        fs::write(&file, out.stdout)?;
        Ok(file)
    }

    fn start_sidecar(
        &self,
        pod: &mut Pod,
        sidecar: Sidecar,
        (namespace, account): (&str, &str),
        envoy: &Path,
    ) -> Result<()> {
        let proxy = format!("{}.{namespace}", pod.name);
        let address = format!("{CONTROL_PLANE}:{PORT}");
        let mut own = vec!["--proxy", &proxy, "--server", &address, "--server-name", SERVER_NAME, "--service-account"];
        own.push(account);
        let (objects, root) = (self.path("objects"), self.path("state/ca/ca-cert.pem"));
        let token = self.path(&format!("{namespace}-{account}.token"));
        let files = [("--config", &objects), ("--root", &root), ("--token", &token)];
        let more =
            ["--concurrency", "1", "--disable-hot-restart", "-l", "warning", "--component-log-level", "misc:error"];
        let mut command = pod.place.command("setpriv");
        command.args(["--regid", SIDECAR_GROUP, "--clear-groups"]);
        if sidecar == Sidecar::Agent {
            command.arg(server::program()?).arg("agent").args(&own).args(["--key", "P-256", "--drain", "1s"]);
            command.args(["--lifetime", &format!("{}s", LIFETIME.as_secs()), "--workdir"]).arg(self.path(pod.name));
            command.args(files.iter().flat_map(|(flag, path)| [flag.as_ref(), path.as_os_str()]));
            command.arg("--envoy").arg(envoy).arg("--").args(more);
        } else {
            let mut bootstrap = Command::new(server::program()?);
            bootstrap.arg("bootstrap").args(&own).args(["--sds", "server", "--output", "json", "--token-secret"]);
            bootstrap.arg(self.path("token-secret.json"));
            bootstrap.args(files.iter().flat_map(|(flag, path)| [flag.as_ref(), path.as_os_str()]));
            let out = bootstrap.output()?;
            ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            fs::write(self.path("bare.json"), out.stdout)?;
            command.arg(envoy).arg("-c").arg(self.path("bare.json")).args(more);
        }
        pod.sidecar = Some(Process::start(&mut command, &self.log(pod.name))?);
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join("logs").join(name)
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<()> {
        let reached = eventually(what, async || Ok(holds().await)).await;
        reached.map_err(|error| anyhow!("{error:#}\n{}", self.logs()))
    }

    fn logs(&self) -> String {
        let mut out = String::new();
        for name in ["server", "client-1", "other-1", "web-1", "bare-1"] {
            let text = fs::read_to_string(self.log(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter(|line| !line.contains("DEBUG")).collect();
            let _ = writeln!(out, "{name}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
        out
    }
}

impl Pod {
    async fn admin(&self, path: &str) -> Result<String> {
        get(&self.worker, 15000, path).await
    }

    async fn is_live(&self) -> bool {
        self.admin("/ready").await.is_ok_and(|text| text.contains("LIVE"))
    }
}

/// A page of a program in a namespace.
async fn get(worker: &NamespaceRuntime, port: u16, path: &str) -> Result<String> {
    let ask = HttpRequest::new((Ipv4Addr::LOCALHOST, port).into(), "localhost", path);
    Ok(worker.spawn(async move { http_client::send_one(&ask).await }).await??.body)
}

/// A scenario's time with the mesh.
pub(crate) struct Turn<'a> {
    state: MutexGuard<'a, State>,
}

impl<'a> Turn<'a> {
    pub(crate) fn take(mesh: &'a SharedMesh) -> Turn<'a> {
        Turn { state: mesh.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner) }
    }

    /// These policies and no others; returns when the servers go by them.
    pub(crate) async fn apply(&mut self, policies: &str) -> Result<()> {
        self.state.policies += 1;
        let mark = format!("mark-{}", self.state.policies);
        let seen = json!({
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
            "metadata": { "name": mark, "namespace": "shop" },
            "spec": { "action": "DENY", "rules": [{ "to": [{ "operation": { "paths": ["/never"] } }] }] },
        });
        let aside = self.state.path("objects/.policies");
        fs::write(&aside, format!("{policies}\n---\n{seen}\n"))?;
        fs::rename(aside, self.state.path("objects/policies.yaml"))?;
        for name in ["web-1", "bare-1"] {
            self.until("policies to arrive", async |turn| {
                let dump = turn.pod(name).admin("/config_dump?resource=dynamic_listeners").await.unwrap_or_default();
                let dump: Value = serde_json::from_str(&dump).unwrap_or_default();
                let listeners = dump["configs"].as_array().cloned().unwrap_or_default();
                listeners.iter().any(|listener| listener["active_state"].to_string().contains(&mark))
            })
            .await?;
        }
        Ok(())
    }

    fn pod(&self, name: &str) -> &Pod {
        self.state.pods.iter().find(|pod| pod.name == name).expect("one of the pods")
    }

    /// A request of a workload's application, through its sidecar.
    pub(crate) async fn asked(&self, from: &str, ask: HttpRequest) -> Result<HttpResponse> {
        self.pod(from).worker.spawn(async move { http_client::send_one(&ask).await }).await?
    }

    /// A request from outside of the mesh, straight to a workload, without TLS.
    pub(crate) async fn asked_outside(&self, ask: HttpRequest) -> Result<HttpResponse> {
        self.state.outside.spawn(async move { http_client::send_one(&ask).await }).await?
    }

    pub(crate) fn worker(&self, pod: &str) -> &NamespaceRuntime {
        &self.pod(pod).worker
    }

    pub(crate) fn outside(&self) -> &NamespaceRuntime {
        &self.state.outside
    }

    pub(crate) fn command_outside(&self, program: &str) -> Command {
        self.state.switch.command(program)
    }

    pub(crate) fn command_in(&self, pod: &str, program: &str) -> Command {
        self.pod(pod).place.command(program)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.state.path(name)
    }

    pub(crate) fn token(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        self.state.token(namespace, account)
    }

    /// The serial numbers of the certificates that a sidecar holds.
    pub(crate) async fn serials(&self, pod: &str) -> Result<Vec<String>> {
        let page: Value = serde_json::from_str(&self.pod(pod).admin("/certs").await?)?;
        let certificates = page["certificates"].as_array().context("no certificates")?;
        let own = certificates.iter().flat_map(|each| each["cert_chain"].as_array().into_iter().flatten());
        Ok(own.filter_map(|each| Some(each["serial_number"].as_str()?.to_owned())).collect())
    }

    /// The sum of a sidecar's counters whose names hold this.
    pub(crate) async fn count(&self, pod: &str, name: &str) -> Result<u64> {
        let page = self.pod(pod).admin(&format!("/stats?filter={name}")).await?;
        Ok(page.lines().filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum())
    }

    /// What a sidecar's log says so far.
    pub(crate) fn log_of(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.state.log(name))?)
    }

    /// Pages of control plane and sidecars, kept beside the logs for the scan at the end.
    pub(crate) async fn keep_pages(&self) -> Result<()> {
        for path in ["/metrics", "/debug/syncz", "/debug/adsz", "/debug/config_dump?proxyID=web-1.shop"] {
            let page = get(&self.state.outside, 15014, path).await?;
            fs::write(self.state.log(&format!("server{}", path.replace('/', "-"))), page)?;
        }
        for pod in self.state.pods.iter().filter(|pod| pod.sidecar.is_some()) {
            for path in ["/config_dump", "/certs", "/stats/prometheus"] {
                fs::write(self.state.log(&format!("{}{}", pod.name, path.replace('/', "-"))), pod.admin(path).await?)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let page = get(&self.state.outside, 15014, "/metrics").await?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.with_context(|| format!("no metric {name}"))
    }

    /// `meltemi ca`: its output, or its error.
    pub(crate) async fn authority(&self, what: &str) -> Result<Value> {
        let mut command = self.state.switch.command(server::program()?);
        let token = self.state.token("istio-system", "meltemi-admin")?;
        command.args(["ca", what, "--output", "json", "--token"]).arg(token);
        let out = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(serde_json::from_slice(&out.stdout)?)
    }

    pub(crate) fn stop_control_plane(&mut self) -> Result<()> {
        self.state.control_plane.take().context("it runs")?.stop()?;
        self.state.stops += 1;
        // Kept for the scan at the end; the next one writes a log of its own.
        fs::rename(self.state.log("server"), self.state.log(&format!("server-{}", self.state.stops)))?;
        Ok(())
    }

    pub(crate) fn start_control_plane(&mut self) -> Result<()> {
        self.state.start_control_plane()
    }

    /// Plugs in an authority of this name, signed by the mesh's own root: key, certificate and chain change together.
    pub(crate) fn plug_in(&self, name: &str) -> Result<()> {
        let read = |name: &str| fs::read_to_string(self.path("state/ca").join(name));
        let root = LeafCertificate { certificate: read("ca-cert.pem")?, key: read("ca-key.pem")? };
        let between = root.intermediate(name)?;
        let (aside, old) = (self.path("cacerts-next"), self.path("cacerts-old"));
        fs::create_dir_all(&aside)?;
        for (file, text) in [
            ("ca-key.pem", &between.key),
            ("ca-cert.pem", &between.certificate),
            ("cert-chain.pem", &between.certificate),
            ("root-cert.pem", &root.certificate),
        ] {
            fs::write(aside.join(file), text)?;
        }
        let live = self.path("cacerts");
        if live.exists() {
            fs::rename(&live, &old)?;
        }
        fs::rename(aside, live)?;
        Ok(fs::remove_dir_all(old).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?)
    }

    /// Without the plugged-in authority; the root signs again.
    pub(crate) fn unplug(&mut self) -> Result<()> {
        self.stop_control_plane()?;
        fs::remove_dir_all(self.path("cacerts"))?;
        self.start_control_plane()
    }

    /// Whether the agent logged that it ended well, and Envoy is gone with it.
    pub(crate) async fn stop_sidecar(&mut self, name: &str) -> Result<bool> {
        let pod = self.state.pods.iter_mut().find(|pod| pod.name == name).context("one of the pods")?;
        let ended = pod.sidecar.take().context("it runs")?.stop()?;
        Ok(ended && pod.admin("/ready").await.is_err())
    }

    pub(crate) async fn start_agent(&mut self, name: &str, namespace: &str, account: &str) -> Result<()> {
        let envoy = environment::envoy().context("no Envoy")?;
        let at = self.state.pods.iter().position(|pod| pod.name == name).context("one of the pods")?;
        let mut pod = self.state.pods.remove(at);
        let started = self.state.start_sidecar(&mut pod, Sidecar::Agent, (namespace, account), &envoy);
        self.state.pods.insert(at, pod);
        started?;
        self.until("the sidecar to be live again", async |turn| turn.pod(name).is_live().await).await
    }

    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) -> Result<()> {
        self.state.until(what, async || holds(self).await).await
    }

    pub(crate) fn logs(&self) -> String {
        self.state.logs()
    }
}

/// A request to a service by its address, as an application makes it.
pub(crate) fn ask(service: &str, path: &str) -> HttpRequest {
    HttpRequest::new((service_address(service), 80).into(), &format!("{service}.shop"), path)
}

/// A request to a pod's own address.
pub(crate) fn ask_pod(account: &str, path: &str) -> HttpRequest {
    HttpRequest::new((pod_address(account), APP_PORT).into(), &format!("{account}.shop"), path)
}

pub(crate) fn pod_address(account: &str) -> Ipv4Addr {
    let last = PODS.iter().find(|pod| pod.2 == account).expect("one of the pods").3;
    Ipv4Addr::new(10, 79, 0, last)
}

fn service_address(account: &str) -> Ipv4Addr {
    Ipv4Addr::new(10, 96, 9, pod_address(account).octets()[3])
}

/// Every request has a connection, and so a handshake, of its own.
const FRESH_CONNECTIONS: &str = r#"{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "fresh", "namespace": "shop"},
"spec": {"host": "*.shop.svc.cluster.local", "trafficPolicy": {"connectionPool": {"http": {"maxRequestsPerConnection": 1}}}}}"#;

fn objects() -> String {
    let mut objects = vec![FRESH_CONNECTIONS.to_owned()];
    for (name, namespace, account, _, _) in PODS {
        let entry = json!({
            "name": name, "namespace": namespace, "ip": pod_address(account).to_string(), "serviceAccount": account,
            "labels": { "app": account, "security.istio.io/tlsMode": "istio" },
        });
        objects.push(pod::object(&entry, "node-1").to_string());
        objects.push(
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": account, "namespace": namespace },
                "spec": {
                    "clusterIP": service_address(account).to_string(), "selector": { "app": account },
                    "ports": [{ "name": "http", "port": 80, "targetPort": APP_PORT }],
                },
            })
            .to_string(),
        );
    }
    objects.join("\n---\n")
}

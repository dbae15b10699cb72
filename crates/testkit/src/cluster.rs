//! A real API server: etcd and kube-apiserver with Istio's kinds. No controllers and no nodes run in it: objects are what was written.

mod api;
mod fault;
mod initial;
mod watched;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sources::kube::{ApiAccess, KubeClient};
use tempfile::TempDir;

pub use api::{ApiWriter, AppliedObject};
pub use fault::{ApiFault, FaultProxy, SeenRequest};
pub use watched::{WatchedStore, options};

use self::initial::InitialObjects;
use crate::wait::eventually;
use crate::{environment, port};

/// The token of somebody who may do everything.
pub const ADMIN: &str = "admin-token";

pub struct TestCluster {
    pub address: SocketAddr,
    // The API server goes before its store.
    api: ServerProcess,
    _store: ServerProcess,
    folder: TempDir,
    /// How many were written.
    kubeconfigs: AtomicUsize,
    /// The definitions of Istio's kinds.
    kinds: String,
    /// `None`: it is still starting.
    initial: Option<InitialObjects>,
}

impl TestCluster {
    /// `None`: the programs are not there.
    pub async fn start() -> Result<Option<TestCluster>> {
        let Some(reference) = environment::reference() else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let store_port = port::reserve()?;
        let store = start_etcd(&reference, folder.path(), store_port)?;
        let address = port::reserve_address()?;
        let key = rcgen::KeyPair::generate()?;
        fs::write(folder.path().join("accounts.key"), key.serialize_pem())?;
        fs::write(folder.path().join("accounts.pub"), key.public_key_pem())?;
        fs::write(folder.path().join("tokens"), format!("{ADMIN},admin,admin,system:masters\n"))?;
        let api = start_api_server(&reference, folder.path(), store_port, address)?;
        let kinds = fs::read_to_string(reference.join("crd-all.gen.yaml"))?;
        let kubeconfigs = AtomicUsize::new(0);
        let mut cluster = TestCluster { address, api, _store: store, folder, kubeconfigs, kinds, initial: None };
        cluster.wait_ready().await?;
        let api = cluster.api().await?;
        api.define(&cluster.kinds).await?;
        cluster.initial = Some(InitialObjects::of(&api).await?);
        Ok(Some(cluster))
    }

    /// Back to what it had when it was started.
    pub async fn restore(&self) -> Result<()> {
        let initial = self.initial.as_ref().context("it is still starting")?;
        initial.restore(&self.api().await?, &self.kinds).await
    }

    pub fn kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig_for(&format!("https://{}", self.address), ADMIN)
    }

    /// For another way to it, or as somebody else.
    pub fn kubeconfig_for(&self, url: &str, token: &str) -> Result<PathBuf> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": url, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let number = self.kubeconfigs.fetch_add(1, Ordering::Relaxed);
        let file = self.folder.path().join(format!("kubeconfig-{number}"));
        fs::write(&file, config.to_string())?;
        Ok(file)
    }

    pub async fn client(&self) -> Result<KubeClient> {
        Ok(KubeClient::new(&ApiAccess { kubeconfig: Some(self.kubeconfig()?), rate: 100_000 }).await?)
    }

    pub async fn api(&self) -> Result<ApiWriter> {
        Ok(ApiWriter::new(self.client().await?))
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let ready = eventually("the API server to be ready", async || {
            self.api.check()?;
            Ok(client.get("/readyz", "*/*").await.is_ok())
        });
        ready.await.with_context(|| self.api.log_tail())
    }
}

fn start_etcd(reference: &Path, folder: &Path, port: u16) -> Result<ServerProcess> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", port::reserve()?));
    let mut command = Command::new(reference.join("bin/etcd"));
    command.arg("--data-dir").arg(folder.join("etcd")).arg("--unsafe-no-fsync");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    ServerProcess::start("etcd", folder, &mut command)
}

fn start_api_server(reference: &Path, folder: &Path, store: u16, address: SocketAddr) -> Result<ServerProcess> {
    let mut command = Command::new(reference.join("bin/kube-apiserver"));
    let path = |flag: &str, file: &str| format!("--{flag}={}", folder.join(file).display());
    command.args([
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        format!("--secure-port={}", address.port()),
        path("cert-dir", "certificates"),
        path("service-account-key-file", "accounts.pub"),
        path("service-account-signing-key-file", "accounts.key"),
        path("token-auth-file", "tokens"),
    ]);
    command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--authorization-mode=RBAC"]);
    command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
    command.args(["--api-audiences=istio-ca,https://kubernetes.default.svc"]);
    command.args(["--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount"]);
    ServerProcess::start("kube-apiserver", folder, &mut command)
}

/// A program that runs as long as this is held.
struct ServerProcess {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

impl ServerProcess {
    fn start(name: &'static str, folder: &Path, command: &mut Command) -> Result<ServerProcess> {
        let log = folder.join(format!("{name}.log"));
        let file = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        Ok(ServerProcess { name, log, child })
    }

    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("{} ended ({status}):\n{}", self.name, self.log_tail())
    }

    fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive and below 2^22"));
        // Nothing in it is worth a clean end.
        let _ = kill(id, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

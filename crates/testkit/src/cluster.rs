//! A real API server: etcd and kube-apiserver with Istio's kinds. No controllers and no nodes run in it: objects are what was written.

mod api;
mod fault;
mod first;
mod live;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sources::kube::{Access, Client};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub use api::{Api, Written};
pub use fault::{Fault, Faulty, Seen};
pub use live::{Live, options};

use self::first::First;
use crate::place;
use crate::server::free_port;

/// The token of somebody who may do everything.
pub const ADMIN: &str = "admin-token";

pub struct Cluster {
    pub address: SocketAddr,
    // The API server goes before its store.
    api: Program,
    _store: Program,
    folder: TempDir,
    /// How many were written.
    kubeconfigs: AtomicUsize,
    /// The definitions of Istio's kinds.
    kinds: String,
    /// `None`: it is still starting.
    first: Option<First>,
}

impl Cluster {
    /// `None`: the programs are not there.
    pub async fn start() -> Result<Option<Cluster>> {
        let Some(reference) = place::reference() else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let store_port = free_port()?;
        let store = store(&reference, folder.path(), store_port)?;
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let key = rcgen::KeyPair::generate()?;
        fs::write(folder.path().join("accounts.key"), key.serialize_pem())?;
        fs::write(folder.path().join("accounts.pub"), key.public_key_pem())?;
        fs::write(folder.path().join("tokens"), format!("{ADMIN},admin,admin,system:masters\n"))?;
        let api = api_server(&reference, folder.path(), store_port, address)?;
        let kinds = fs::read_to_string(reference.join("crd-all.gen.yaml"))?;
        let kubeconfigs = AtomicUsize::new(0);
        let mut cluster = Cluster { address, api, _store: store, folder, kubeconfigs, kinds, first: None };
        cluster.wait_ready().await?;
        let api = cluster.api().await?;
        api.define(&cluster.kinds).await?;
        cluster.first = Some(First::of(&api).await?);
        Ok(Some(cluster))
    }

    /// Back to what it had when it was started.
    pub async fn restore(&self) -> Result<()> {
        let first = self.first.as_ref().context("it is still starting")?;
        first.restore(&self.api().await?, &self.kinds).await
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

    pub async fn client(&self) -> Result<Client> {
        Ok(Client::new(&Access { kubeconfig: Some(self.kubeconfig()?), rate: 100_000 }).await?)
    }

    pub async fn api(&self) -> Result<Api> {
        Ok(Api::new(self.client().await?))
    }

    async fn wait_ready(&mut self) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(120);
        let (client, end) = (self.client().await?, Instant::now() + LIMIT);
        while client.get("/readyz", "*/*").await.is_err() {
            self.api.check()?;
            ensure!(Instant::now() < end, "the API server is not ready after {LIMIT:?}:\n{}", self.api.last_words());
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

fn store(reference: &Path, folder: &Path, port: u16) -> Result<Program> {
    let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()?));
    let mut command = Command::new(reference.join("bin/etcd"));
    command.arg("--data-dir").arg(folder.join("etcd")).arg("--unsafe-no-fsync");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    Program::start("etcd", folder, &mut command)
}

fn api_server(reference: &Path, folder: &Path, store: u16, address: SocketAddr) -> Result<Program> {
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
    Program::start("kube-apiserver", folder, &mut command)
}

/// A program that runs as long as this is held.
struct Program {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

impl Program {
    fn start(name: &'static str, folder: &Path, command: &mut Command) -> Result<Program> {
        let log = folder.join(format!("{name}.log"));
        let file = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name} does not start"))?;
        Ok(Program { name, log, child })
    }

    fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("{} ended ({status}):\n{}", self.name, self.last_words())
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive and below 2^22"));
        // Nothing in it is worth a clean end.
        let _ = kill(id, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

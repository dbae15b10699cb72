//! The built program on the API server, with what a test wants of it, and waiting for what it does.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sources::kube::JSON;
use testkit::cluster::{Api, Cluster};
use testkit::server;
use tokio::time::{Instant, sleep};

const SOON: Duration = Duration::from_secs(60);

pub(super) struct Instance {
    child: Child,
    pub(super) grpc: SocketAddr,
    pub(super) secure: SocketAddr,
    pub(super) monitoring: SocketAddr,
    log: PathBuf,
}

/// What an instance is told besides where the API server is.
#[derive(Default)]
pub(super) struct Told<'a> {
    pub(super) env: &'a [(&'a str, &'a str)],
    pub(super) flags: &'a [&'a str],
}

impl Instance {
    /// Returns when it serves.
    pub(super) async fn start(cluster: &Cluster, folder: &Path, name: &str, told: Told<'_>) -> Result<Instance> {
        let port = || anyhow::Ok(SocketAddr::from(([127, 0, 0, 1], server::free_port()?)));
        let (grpc, secure, monitoring, webhook) = (port()?, port()?, port()?, port()?);
        let program = tokio::task::spawn_blocking(server::program).await??;
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = Command::new(program)
            .args(["serve", "--httpAddr="])
            .args([format!("--grpcAddr={grpc}"), format!("--secureGRPCAddr={secure}")])
            .args([format!("--monitoringAddr={monitoring}"), format!("--httpsAddr={webhook}")])
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig()?)
            .arg("--stateDir")
            .arg(folder.join(name))
            .args(told.flags)
            .env("POD_NAME", name)
            .envs(told.env.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let mut instance = Instance { child, grpc, secure, monitoring, log };
        let opened = until("its secure port is open", async || {
            ensure!(instance.child.try_wait()?.is_none(), "it ended");
            Ok(TcpStream::connect(secure).is_ok())
        });
        opened.await.with_context(|| instance.log())?;
        Ok(instance)
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.signal(Signal::SIGTERM);
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) async fn until(what: &str, mut there: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + SOON;
    while !there().await? {
        ensure!(Instant::now() < end, "not after {SOON:?}: {what}");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// `Null`: there is none.
pub(super) async fn read(api: &Api, path: &str) -> Value {
    let text = api.client.get(path, JSON).await.unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

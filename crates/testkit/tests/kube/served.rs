//! The built program on the API server, with what a test wants of it, and waiting for what it does.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use testkit::cluster::Cluster;
use testkit::server;

use super::instance::{Process, until};

pub(super) struct Instance {
    process: Process,
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
        let mut command = Command::new(program);
        command
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
            .stdout(file.try_clone()?)
            .stderr(file);
        let process = Process::start(&mut command)?;
        let mut instance = Instance { process, grpc, secure, monitoring, log };
        let opened = until("its secure port is open", async || {
            ensure!(!instance.process.has_ended()?, "it ended");
            Ok(TcpStream::connect(secure).is_ok())
        });
        opened.await.with_context(|| instance.log())?;
        Ok(instance)
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }
}

//! The program on an API server as a test wants it: as whom it speaks to the server, with which settings, and all its ports.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use testkit::cluster::TestCluster;
use testkit::process::Process;
use testkit::test_ca::TestCa;
use testkit::wait::eventually;
use testkit::{port, server};

pub(crate) struct Instance {
    process: Process,
    folder: tempfile::TempDir,
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
    pub(crate) webhook: SocketAddr,
    pub(crate) monitoring: SocketAddr,
    readiness: SocketAddr,
}

impl Instance {
    /// A replica of this name that may do everything, ready.
    pub(crate) async fn named(
        cluster: &TestCluster,
        name: &str,
        flags: &[&str],
        settings: &[(&str, &str)],
    ) -> Result<Instance> {
        let settings = [&[("POD_NAME", name)], settings].concat();
        Instance::start(&cluster.kubeconfig()?, flags, &settings).await?.ready().await
    }

    /// Its ports for plain text are open when this returns; its secure one is when it is ready.
    pub(crate) async fn start(kubeconfig: &Path, flags: &[&str], settings: &[(&str, &str)]) -> Result<Instance> {
        let folder = tempfile::tempdir()?;
        let program = tokio::task::spawn_blocking(server::program).await??;
        let [plain, secure, webhook] = [port::reserve_address()?, port::reserve_address()?, port::reserve_address()?];
        let [monitoring, readiness] = [port::reserve_address()?, port::reserve_address()?];
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--ctrlz_port=0", "--shutdownDuration=3s"])
            .args([format!("--grpcAddr={plain}"), format!("--secureGRPCAddr={secure}")])
            .args([format!("--httpsAddr={webhook}"), format!("--httpAddr={readiness}")])
            .arg(format!("--monitoringAddr={monitoring}"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--stateDir")
            .arg(folder.path().join("state"))
            .args(flags)
            .envs(settings.iter().copied())
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Process::spawn(&mut command)?;
        let mut instance = Instance { process, folder, plain, secure, webhook, monitoring, readiness };
        let opened = eventually("meltemi to open a port", async || {
            ensure!(!instance.process.has_ended()?, "meltemi ended");
            Ok(TcpStream::connect(plain).is_ok())
        });
        opened.await.map_err(|error| anyhow!("{error:#}\n{}", instance.log()))?;
        Ok(instance)
    }

    /// Until proxies are served on every port.
    pub(crate) async fn ready(self) -> Result<Instance> {
        let ready = eventually("meltemi to be ready", async || Ok(self.is_ready()));
        ready.await.with_context(|| self.log())?;
        Ok(self)
    }

    pub(crate) fn is_ready(&self) -> bool {
        fetched(self.readiness, "/ready").is_ok_and(|page| page.starts_with("HTTP/1.1 200"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A file of its authority; `ca-cert.pem` is the root that its secure port is signed by.
    pub(crate) fn authority(&self, file: &str) -> PathBuf {
        self.folder.path().join("state/ca").join(file)
    }

    /// For commands that ask it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.monitoring)
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Whether it ended well, once it has.
    pub(crate) async fn ended(&mut self) -> Result<bool> {
        let mut status = None;
        eventually("meltemi to end", async || {
            status = self.process.exit_status()?;
            Ok(status.is_some())
        })
        .await?;
        Ok(status.is_some_and(|status| status.success()))
    }

    pub(crate) fn page(&self, path: &str) -> Result<String> {
        fetched(self.monitoring, path)
    }

    /// All series of a metric whose labels have this text, added up.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        Ok(sum_of_series(&self.page("/metrics")?, name, labels))
    }
}

/// Of one page of metrics.
pub(crate) fn sum_of_series(page: &str, name: &str, labels: &str) -> f64 {
    let series = page.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let own = series.strip_prefix(name)?;
        (own.is_empty() || own.starts_with('{') && own.contains(labels)).then(|| value.parse::<f64>().ok())?
    });
    series.sum()
}

/// What a server needs for an external CA: the files of its secure port, and the roots of the mesh. The CA itself is not reached.
pub(crate) struct ExternalCaFiles {
    folder: tempfile::TempDir,
}

impl ExternalCaFiles {
    pub(crate) fn new() -> Result<ExternalCaFiles> {
        let (folder, mesh) = (tempfile::tempdir()?, TestCa::new()?);
        let serving = mesh.host_certificate("istiod.istio-system.svc")?;
        for (name, text) in [("root.pem", mesh.root()), ("tls.crt", serving.certificate), ("tls.key", serving.key)] {
            fs::write(folder.path().join(name), text)?;
        }
        Ok(ExternalCaFiles { folder })
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn root(&self) -> String {
        self.file("root.pem")
    }

    pub(crate) fn flags(&self) -> [String; 2] {
        [format!("--tlsCertFile={}", self.file("tls.crt")), format!("--tlsKeyFile={}", self.file("tls.key"))]
    }
}

/// The settings for these roots.
pub(crate) fn external_ca(root: &str) -> [(&str, &str); 3] {
    [("EXTERNAL_CA", "true"), ("CA_ADDR", "127.0.0.1:1"), ("CA_ROOT_CA", root)]
}

pub(crate) fn fetched(at: SocketAddr, path: &str) -> Result<String> {
    let mut socket = TcpStream::connect(at)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

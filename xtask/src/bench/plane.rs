//! A control plane under test: Meltemi on a folder or an API server, or istiod on one. Started and stopped; what it costs is measured elsewhere.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::authority::Authority;
use crate::reference::Reference;
use shop::port;
use shop::process::ChildProcess;

/// A mesh of ten thousand services has to be read first.
const DEADLINE: Duration = Duration::from_secs(120);

pub(super) struct Plane {
    pub(super) process: ChildProcess,
    pub(super) xds: SocketAddr,
    /// Metrics.
    pub(super) monitoring: SocketAddr,
    /// `None`: it is off.
    pub(super) secure: Option<SocketAddr>,
}

/// How proxies connect.
pub(super) enum ProxyTransport<'a> {
    Plain(SocketAddr),
    /// With certificates of this authority.
    Secure(SocketAddr, &'a Authority),
}

/// Settings beside those that every run needs.
pub(super) type Environment<'a> = &'a [(&'a str, &'a str)];

impl Plane {
    pub(super) fn meltemi(program: &Path, folder: &Path, logs: &Path, environment: Environment) -> Result<Plane> {
        let (xds, monitoring) = (port::reserve()?, port::reserve()?);
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(folder).arg("--log_output_level=all:warn");
        command.arg(format!("--grpcAddr={xds}")).arg(format!("--monitoringAddr={monitoring}"));
        command.args(["--httpAddr=", "--secureGRPCAddr=", "--httpsAddr="]).envs(environment.iter().copied());
        let mut process = ChildProcess::start("meltemi", logs, &mut command)?;
        // The ports open after the first load.
        until("meltemi to listen", &mut process, || TcpStream::connect(xds).is_ok())?;
        Ok(Plane { process, xds, monitoring, secure: None })
    }

    /// With nothing but the secure port and metrics.
    pub(super) fn meltemi_secure(
        program: &Path,
        folder: &Path,
        state: &Path,
        logs: &Path,
        environment: Environment,
    ) -> Result<Plane> {
        let (secure, monitoring) = (port::reserve()?, port::reserve()?);
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(folder).arg("--log_output_level=all:warn");
        command.arg(format!("--secureGRPCAddr={secure}")).arg(format!("--monitoringAddr={monitoring}"));
        command.arg("--stateDir").arg(state).args(["--httpAddr=", "--grpcAddr=", "--httpsAddr="]);
        let mut process = ChildProcess::start("meltemi", logs, command.envs(environment.iter().copied()))?;
        until("meltemi to listen", &mut process, || TcpStream::connect(secure).is_ok())?;
        Ok(Plane { process, xds: secure, monitoring, secure: Some(secure) })
    }

    /// With all its ports, as istiod has them here. `webhook`: `None` if that one is off.
    pub(super) fn meltemi_on_cluster(
        program: &Path,
        kubeconfig: &Path,
        logs: &Path,
        environment: Environment,
        webhook: Option<SocketAddr>,
    ) -> Result<Plane> {
        let [http, xds, secure, monitoring] = [port::reserve()?, port::reserve()?, port::reserve()?, port::reserve()?];
        let mut command = Command::new(program);
        command.arg("serve").arg("--kubeconfig").arg(kubeconfig).arg("--log_output_level=all:warn");
        command.arg(format!("--httpAddr={http}")).arg(format!("--grpcAddr={xds}"));
        command.arg(format!("--secureGRPCAddr={secure}")).arg(format!("--monitoringAddr={monitoring}"));
        command.arg(https(webhook)).args(["--ctrlz_port=0", "--stateDir"]).arg(logs.join("state"));
        // istiod writes no status by default; in a new cluster of a thousand objects that is two minutes of writes.
        command.envs([("ENABLE_LEADER_ELECTION", "false"), ("PILOT_ENABLE_STATUS", "false")]);
        command.envs(environment.iter().copied());
        let mut process = ChildProcess::start("meltemi", logs, &mut command)?;
        until_ready("meltemi to be ready", &mut process, http)?;
        Ok(Plane { process, xds, monitoring, secure: Some(secure) })
    }

    /// `webhook`: `None` if that port is off.
    pub(super) fn istiod(
        reference: &Reference,
        kubeconfig: &Path,
        logs: &Path,
        environment: Environment,
        webhook: Option<SocketAddr>,
    ) -> Result<Plane> {
        let [http, xds, secure, monitoring, introspection] =
            [port::reserve()?, port::reserve()?, port::reserve()?, port::reserve()?, port::reserve()?];
        let mut command = Command::new(reference.program("pilot-discovery"));
        command.arg("discovery").arg("--kubeconfig").arg(kubeconfig).current_dir(logs);
        command.arg(format!("--httpAddr={http}")).arg(format!("--grpcAddr={xds}"));
        command.arg(format!("--secureGRPCAddr={secure}")).arg(format!("--monitoringAddr={monitoring}"));
        command.arg(https(webhook)).arg("--log_output_level=all:warn");
        command.arg(format!("--ctrlz_port={}", introspection.port()));
        let fixed = [
            ("POD_NAMESPACE", "istio-system"),
            ("POD_NAME", "istiod-0"),
            ("CLUSTER_ID", "Kubernetes"),
            ("REVISION", "default"),
            ("ENABLE_LEADER_ELECTION", "false"),
            ("PILOT_CERT_PROVIDER", "istiod"),
            ("INJECTION_WEBHOOK_CONFIG_NAME", ""),
            ("VALIDATION_WEBHOOK_CONFIG_NAME", ""),
        ];
        command.env("KUBECONFIG", kubeconfig).envs(fixed).envs(environment.iter().copied());
        let mut process = ChildProcess::start("istiod", logs, &mut command)?;
        until_ready("istiod to be ready", &mut process, http)?;
        Ok(Plane { process, xds, monitoring, secure: Some(secure) })
    }

    /// `authority`: the CA it was started with. `None`: proxies connect in plaintext.
    pub(super) fn transport<'a>(&self, authority: Option<&'a Authority>) -> Result<ProxyTransport<'a>> {
        let Some(authority) = authority else { return Ok(ProxyTransport::Plain(self.xds)) };
        Ok(ProxyTransport::Secure(self.secure.context("the plane has a secure port")?, authority))
    }
}

fn https(webhook: Option<SocketAddr>) -> String {
    format!("--httpsAddr={}", webhook.map(|it| it.to_string()).unwrap_or_default())
}

fn until_ready(what: &str, process: &mut ChildProcess, http: SocketAddr) -> Result<()> {
    let url = format!("http://{http}/ready");
    until(what, process, || {
        Command::new("curl")
            .args(["-sf", "--max-time", "2", "-o", "/dev/null", &url])
            .status()
            .is_ok_and(|s| s.success())
    })
}

pub(super) fn until(what: &str, process: &mut ChildProcess, mut is_done: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_done() {
        process.check()?;
        if begun.elapsed() > DEADLINE {
            bail!("waited {} s for {what}\n{}", DEADLINE.as_secs(), process.log_tail());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

//! A server with its secure port and proxies that prove who they are: `meltemi serve`, and `meltemi agent` with an Envoy for each proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use testkit::process::Process;
use testkit::wait::eventually_blocking;
use testkit::{environment, port, server};

pub(crate) struct Live {
    folder: tempfile::TempDir,
    /// The port where nobody is asked who they are.
    pub(crate) plain: SocketAddr,
    secure: SocketAddr,
    monitoring: SocketAddr,
    processes: Vec<Process>,
}

/// A proxy and whose it is.
pub(crate) struct Proxy<'a> {
    /// `POD.NAMESPACE`.
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) account: &'a str,
    pub(crate) app: &'a str,
}

impl Live {
    /// Answers once the ports are open.
    pub(crate) fn start(files: &[(&str, &str)]) -> Result<Live> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("objects"))?;
        let (plain, secure, monitoring) =
            (port::reserve_address()?, port::reserve_address()?, port::reserve_address()?);
        let mut live = Live { folder, plain, secure, monitoring, processes: Vec::new() };
        for (name, text) in files {
            live.write(name, text)?;
        }
        let mut serve = Command::new(server::program()?);
        serve.args(["serve", "--httpAddr=", "--httpsAddr="]);
        serve.arg(format!("--grpcAddr={plain}")).arg(format!("--secureGRPCAddr={secure}"));
        serve.arg(format!("--monitoringAddr={monitoring}"));
        serve.arg("--config").arg(live.path("objects")).arg("--stateDir").arg(live.path("state"));
        live.spawn("server.log", &mut serve)?;
        live.wait("readiness", || live.log("server").lines().any(|line| line.starts_with("ready ")))?;
        Ok(live)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An object file, replaced in one step.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let fresh = self.path("fresh");
        fs::write(&fresh, text)?;
        Ok(fs::rename(fresh, self.path("objects").join(name))?)
    }

    /// Starts an Envoy with our agent.
    pub(crate) fn proxy(&mut self, proxy: &Proxy<'_>) -> Result<()> {
        let Proxy { name, kind, account, app } = proxy;
        let namespace = name.rsplit('.').next().unwrap_or_default();
        let token = Command::new(server::program()?)
            .args(["token", "create", "--service-account", &format!("{namespace}/{account}"), "--stateDir"])
            .arg(self.path("state"))
            .output()?;
        ensure!(token.status.success(), "{}", String::from_utf8_lossy(&token.stderr));
        let token_file = self.path(&format!("{name}.token"));
        fs::write(&token_file, token.stdout)?;
        let mut agent = Command::new(server::program()?);
        agent.args(["agent", "--proxy", name, "--proxy-type", kind, "--ip", "127.0.0.1", "--key", "P-256"]);
        agent.args(["--service-account", account, "--label", &format!("app={app}"), "--admin="]);
        agent.args(["--metadata", "INTERCEPTION_MODE=NONE", "--server", &self.secure.to_string()]);
        agent.arg("--root").arg(self.path("state/ca/ca-cert.pem")).arg("--token").arg(token_file);
        agent.arg("--workdir").arg(self.path(&format!("{name}.work")));
        agent.arg("--envoy").arg(environment::envoy().context("no Envoy")?);
        agent.args(["--drain", "0s", "--", "--concurrency", "1", "-l", "warn"]);
        self.spawn(&format!("{name}.log"), &mut agent)
    }

    fn spawn(&mut self, log: &str, command: &mut Command) -> Result<()> {
        self.processes.push(Process::start(command, &self.path(log))?);
        Ok(())
    }

    /// Ends the proxy that was started first, with its agent.
    pub(crate) fn stop_first_proxy(&mut self) {
        self.processes.remove(1);
    }

    /// What a command prints that asks the server.
    pub(crate) fn command(&self, words: &[&str]) -> Result<String> {
        let server = format!("http://{}", self.monitoring);
        let output = Command::new(server::program()?).args(words).args(["--server", &server]).output()?;
        Ok(String::from_utf8(output.stdout)? + &String::from_utf8_lossy(&output.stderr))
    }

    /// A page of the monitoring port.
    pub(crate) fn page(&self, path: &str) -> Result<String> {
        let mut socket = TcpStream::connect(self.monitoring)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    pub(crate) fn wait(&self, what: &str, mut there: impl FnMut() -> bool) -> Result<()> {
        eventually_blocking(what, || Ok(there())).map_err(|error| anyhow!("{error:#}\n{}", self.logs()))
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    pub(crate) fn logs(&self) -> String {
        let entries = fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| Path::new(&entry.file_name()).extension().is_some_and(|it| it == "log"));
        logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }
}

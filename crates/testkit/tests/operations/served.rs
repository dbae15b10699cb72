//! A mesh on disk, the real program that serves it, and a swarm of proxies.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, anyhow, bail, ensure};
use loadgen::mesh::MeshPlan;
use loadgen::{Swarm, SwarmOptions};
use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use serde_json::Value;
use testkit::process::Process;
use testkit::wait::{DEADLINE, eventually_blocking};
use testkit::{port, server};

/// A small mesh that has nothing wrong with it.
pub(crate) fn plan(services: usize, proxies: usize) -> MeshPlan {
    MeshPlan {
        services,
        endpoints: 2,
        slices: 1,
        namespaces: 4,
        proxies,
        scoped: true,
        virtual_services: 30,
        destination_rules: 30,
        gateways: 0,
        gateway_proxies: 0,
    }
}

pub(crate) struct ServedMesh {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) xds: SocketAddr,
    pub(crate) secure: SocketAddr,
    pub(crate) monitoring: SocketAddr,
    control: SocketAddr,
    nodes: Vec<Value>,
    program: Process,
}

/// How a server is started.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// More objects, as YAML by file name.
    pub(crate) more: &'a [(&'a str, String)],
    /// A command that starts it, such as `unshare`. Empty: it is started directly.
    pub(crate) through: &'a [String],
    /// The pages are served on every address of this machine.
    pub(crate) everywhere: bool,
    /// Where its log goes. `None`: to a file.
    pub(crate) log: Option<File>,
}

impl ServedMesh {
    pub(crate) fn new(plan: &MeshPlan, env: &[(&str, &str)]) -> Result<ServedMesh> {
        ServedMesh::with(plan, &Setup { env, ..Setup::default() })
    }

    pub(crate) fn with(plan: &MeshPlan, setup: &Setup<'_>) -> Result<ServedMesh> {
        let folder = tempfile::tempdir()?;
        plan.write(folder.path())?;
        for (name, text) in setup.more {
            fs::write(folder.path().join("objects").join(name), text)?;
        }
        let [xds, secure] = [port::reserve_address()?, port::reserve_address()?];
        let [monitoring, control] = [port::reserve_address()?, port::reserve_address()?];
        let pages = if setup.everywhere { format!(":{}", monitoring.port()) } else { monitoring.to_string() };
        let log = match &setup.log {
            Some(log) => log.try_clone()?,
            None => File::create(folder.path().join("server.log"))?,
        };
        let program = server::program()?;
        let mut words = setup.through.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().context("a program")?);
        command
            .args(words)
            .args(["serve", "--httpAddr=", "--httpsAddr=", "--shutdownDuration=1s", "--config"])
            .arg(folder.path().join("objects"))
            .arg("--stateDir")
            .arg(folder.path().join("state"))
            .args([format!("--grpcAddr={xds}"), format!("--secureGRPCAddr={secure}")])
            .args([format!("--monitoringAddr={pages}"), format!("--ctrlz_port={}", control.port())])
            .env("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true")
            .envs(setup.env.iter().copied())
            .stdout(log.try_clone()?)
            .stderr(log);
        let (nodes, program) = (plan.nodes().collect(), Process::spawn(&mut command)?);
        let mut mesh = ServedMesh { folder, xds, secure, monitoring, control, nodes, program };
        let ready = eventually_blocking("meltemi to be ready", || {
            ensure!(!mesh.program.has_ended()?, "meltemi ended");
            Ok(mesh.is_ready(setup))
        });
        ready.map_err(|error| anyhow!("{error:#}\n{}", mesh.log()))?;
        Ok(mesh)
    }

    /// All ports are open then, and the authority has its root. Where the log cannot be read, the plain port must do.
    fn is_ready(&self, setup: &Setup<'_>) -> bool {
        match setup.log {
            Some(_) => TcpStream::connect(self.xds).is_ok(),
            None => self.log().lines().any(|line| line.starts_with("ready ")),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    /// All proxies of the plan, before any is connected.
    pub(crate) fn idle_swarm(&self) -> Result<Swarm> {
        Swarm::new(&self.nodes, &SwarmOptions { server: self.xds, authority: None, stalled: 0, silent: 0 })
    }

    pub(crate) fn wait_for(&self, what: &str, is_there: impl FnMut() -> Result<bool>) -> Result<()> {
        eventually_blocking(what, is_there).map_err(|error| anyhow!("{error:#}\n{}", self.log()))
    }

    /// All proxies of the plan, connected and content.
    pub(crate) async fn swarm(&self) -> Result<Swarm> {
        self.swarm_with(0, 0).await
    }

    /// Of a hundred proxies so many never read, or never answer.
    pub(crate) async fn swarm_with(&self, stalled: usize, silent: usize) -> Result<Swarm> {
        self.connected(&SwarmOptions { server: self.xds, authority: None, stalled, silent }).await
    }

    /// All proxies of the plan at the secure port, each with a certificate of its service account.
    pub(crate) async fn secure_swarm(&self) -> Result<Swarm> {
        let authority = Some(self.path("state/ca"));
        self.connected(&SwarmOptions { server: self.secure, authority, stalled: 0, silent: 0 }).await
    }

    async fn connected(&self, options: &SwarmOptions) -> Result<Swarm> {
        let mut swarm = Swarm::new(&self.nodes, options)?;
        swarm.execute("mark connect all").await?;
        swarm.execute("connect").await?;
        let settled = swarm.execute("settle 120000 300 150000").await?;
        ensure!(settled["settled"] == true, "the proxies do not settle: {settled}");
        Ok(swarm)
    }

    /// Writes a file of the mesh again and waits until the proxies have received it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path("objects").join(name);
        fs::create_dir_all(path.parent().context("a file stands in a folder")?)?;
        Ok(fs::write(path, text)?)
    }

    pub(crate) fn page(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.monitoring)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.contains(" 200 "), "{path}: {answer}");
        Ok(body.to_owned())
    }

    /// A request to the port where log levels are set: the status and the body of its answer. It comes with all that a change needs.
    pub(crate) fn control(&self, method: &str, path: &str, body: &str) -> Result<(String, String)> {
        let token = self.token("istio-system/meltemi-admin")?;
        let mut stream = TcpStream::connect(self.control)?;
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len())?;
        write!(stream, "Authorization: Bearer {token}\r\nX-Meltemi-Admin: 1\r\n\r\n{body}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
    }

    /// A token of NAMESPACE/NAME that the server believes.
    pub(crate) fn token(&self, account: &str) -> Result<String> {
        let mut command = Command::new(server::program()?);
        command.args(["token", "create", "--service-account", account, "--stateDir"]).arg(self.path("state"));
        Ok(stdout(&command.output()?)?.trim().to_owned())
    }

    /// Runs the program as a command.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Output> {
        let server = format!("http://{}", self.monitoring);
        Ok(Command::new(server::program()?).args(words).args(["--server", &server]).output()?)
    }

    /// A folder with certificate, key and root of an identity of this mesh, as istioctl and curl take them.
    pub(crate) fn certificate(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let read = |name: &str| fs::read_to_string(self.path("state/ca").join(name)).with_context(|| name.to_owned());
        let root = read("ca-cert.pem")?;
        let issuer = Issuer::from_ca_cert_pem(&root, KeyPair::from_pem(&read("ca-key.pem")?)?)?;
        let mut params = CertificateParams::default();
        let name = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}");
        params.subject_alt_names = vec![SanType::URI(name.as_str().try_into()?)];
        params.distinguished_name = DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &issuer)?;
        let folder = self.path(&format!("certificate-{namespace}-{account}"));
        fs::create_dir_all(&folder)?;
        put(&folder, "cert-chain.pem", &leaf.pem())?;
        put(&folder, "key.pem", &key.serialize_pem())?;
        put(&folder, "root-cert.pem", &root)?;
        Ok(folder)
    }
}

fn put(folder: &Path, name: &str, text: &str) -> Result<()> {
    Ok(fs::write(folder.join(name), text)?)
}

pub(crate) fn stdout(output: &Output) -> Result<String> {
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout.clone())?)
}

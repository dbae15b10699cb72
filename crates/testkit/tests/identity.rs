//! The secure port with a real Envoy: certificate by our agent, configuration over mutual TLS, renewal, an authority that is away.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testkit::{place, server, skip};

const PATIENCE: Duration = Duration::from_secs(60);
const ACCOUNT: &str = "spiffe://cluster.local/ns/shop/sa/cart";

#[test]
fn an_envoy_with_our_agent_outlives_its_certificates_and_an_absent_authority() {
    let Some(envoy) = place::envoy() else {
        return skip("identity with a real Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    run(&envoy).unwrap_or_else(|e| panic!("{e:#}"));
}

fn run(envoy: &Path) -> Result<()> {
    let mesh = Mesh::new()?;
    let mut server = mesh.serve()?;
    mesh.wait(|| TcpStream::connect(mesh.secure).is_ok(), "the secure port")?;
    let token = Command::new(server::program()?)
        .args(["token", "create", "--service-account", "shop/cart", "--stateDir"])
        .arg(mesh.path("state"))
        .output()?;
    ensure!(token.status.success(), "{}", String::from_utf8_lossy(&token.stderr));
    fs::write(mesh.path("token"), token.stdout)?;

    let mut agent = mesh.agent(envoy)?;
    mesh.wait(|| mesh.admin("/ready").is_ok_and(|text| text.contains("LIVE")), "Envoy to be LIVE")?;
    let first = mesh.certificate()?;
    ensure!(first.contains(ACCOUNT), "the certificate names somebody else: {first}");
    let clusters = mesh.admin("/clusters")?;
    ensure!(clusters.contains("outbound|80||cart.shop.svc.cluster.local"), "no configuration came: {clusters}");
    mesh.wait(|| mesh.certificate().is_ok_and(|now| now != first), "a renewed certificate")?;

    // Longer than from one renewal to the next: at least one attempt fails.
    server.stop()?;
    std::thread::sleep(LIFETIME);
    ensure!(mesh.admin("/ready")?.contains("LIVE"), "Envoy did not survive");
    let before = mesh.certificate()?;
    let _server = mesh.serve()?;
    mesh.wait(|| mesh.certificate().is_ok_and(|now| now != before), "a certificate after the authority came back")?;

    ensure!(agent.stop()?, "the agent ended with an error: {}", mesh.log());
    ensure!(mesh.admin("/ready").is_err(), "Envoy is still there");
    for name in ["server.log", "agent.log"] {
        let log = fs::read_to_string(mesh.path(name))?;
        ensure!(!log.contains("PRIVATE KEY"), "{name} holds a key");
        ensure!(!log.contains(fs::read_to_string(mesh.path("token"))?.trim()), "{name} holds the token");
    }
    Ok(())
}

const LIFETIME: Duration = Duration::from_secs(8);

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
metadata: {name: cart-1, namespace: shop, labels: {app: cart}, annotations: {sidecar.istio.io/interceptionMode: NONE}}
spec: {serviceAccountName: cart, containers: [{name: app}]}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}], conditions: [{type: Ready, status: \"True\"}]}
";

struct Mesh {
    folder: tempfile::TempDir,
    secure: SocketAddr,
    admin: SocketAddr,
}

impl Mesh {
    fn new() -> Result<Mesh> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("objects"))?;
        fs::write(folder.path().join("objects/mesh.yaml"), OBJECTS)?;
        Ok(Mesh { folder, secure: free_address()?, admin: free_address()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, log: &str, command: &mut Command) -> Result<Process> {
        let log = File::options().create(true).append(true).open(self.path(log))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        Ok(Process(child))
    }

    fn serve(&self) -> Result<Process> {
        let mut command = Command::new(server::program()?);
        command.args(["serve", "--grpcAddr=", "--httpAddr=", "--httpsAddr=", "--monitoringAddr="]);
        command.arg(format!("--secureGRPCAddr={}", self.secure));
        command.arg("--config").arg(self.path("objects")).arg("--stateDir").arg(self.path("state"));
        self.start("server.log", &mut command)
    }

    fn agent(&self, envoy: &Path) -> Result<Process> {
        let mut command = Command::new(server::program()?);
        command.args(["agent", "--proxy", "cart-1.shop", "--service-account", "cart", "--key", "P-256"]);
        command.args(["--server", &self.secure.to_string(), "--admin", &self.admin.to_string(), "--drain", "1s"]);
        command.args(["--lifetime", &format!("{}s", LIFETIME.as_secs())]);
        for (flag, name) in
            [("--config", "objects"), ("--root", "state/ca/ca-cert.pem"), ("--token", "token"), ("--workdir", "work")]
        {
            command.arg(flag).arg(self.path(name));
        }
        command.arg("--envoy").arg(envoy).args(["--", "--use-dynamic-base-id", "-l", "warn"]);
        self.start("agent.log", &mut command)
    }

    fn admin(&self, path: &str) -> Result<String> {
        let mut socket = TcpStream::connect(self.admin)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(socket, "GET {path} HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// The part of the page that describes the workload's own certificate.
    fn certificate(&self) -> Result<String> {
        let page = self.admin("/certs")?;
        page.split_once("\"cert_chain\"").map(|(_, own)| own.to_owned()).context("Envoy has no certificate")
    }

    fn wait(&self, mut there: impl FnMut() -> bool, what: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !there() {
            if Instant::now() > end {
                bail!("no sign of {what} after {PATIENCE:?}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("{}\n{}", read("server.log"), read("agent.log"))
    }
}

struct Process(Child);

impl Process {
    /// Whether it ended well.
    fn stop(&mut self) -> Result<bool> {
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGTERM)?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
            ensure!(Instant::now() < end, "a process does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended, mostly.
        let _ = self.stop();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

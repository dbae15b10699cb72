//! An external authority: a second Meltemi signs, the first one passes requests on. With a real Envoy and our agent.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http_client::{self, HttpRequest};
use testkit::process::Process;
use testkit::test_ca::TestCa;
use testkit::token::JwtIssuer;
use testkit::wait::{eventually, eventually_blocking};
use testkit::{environment, port, server, skip};

/// Long enough that an outage does not end it.
const LIFETIME: &str = "10s";
const NAME: &str = "istiod.istio-system.svc";

#[tokio::test(flavor = "multi_thread")]
async fn a_second_meltemi_signs_and_its_outage_is_survived() {
    let Some(envoy) = environment::envoy() else {
        return skip("an external authority with a real Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let mesh = Mesh::new().unwrap();
    let result = run(&mesh, &envoy).await;
    result.unwrap_or_else(|e| panic!("{e:#}\n{}", mesh.logs()));
}

async fn run(mesh: &Mesh, envoy: &Path) -> Result<()> {
    let external = mesh.start_external()?;
    let _first = mesh.start_first()?;
    let _agent = mesh.start_agent(envoy)?;
    mesh.until("Envoy to be live", async || mesh.page(mesh.admin, "/ready").await.is_ok_and(|it| it.contains("LIVE")))
        .await?;
    let certificate = mesh.certificate().await?;
    ensure!(certificate["subject_alt_names"][0]["uri"] == "spiffe://cluster.local/ns/shop/sa/cart", "{certificate}");
    mesh.until("a renewal", async || mesh.certificate().await.is_ok_and(|now| now != certificate)).await?;

    let issued = "citadel_server_success_cert_issuance_count";
    ensure!(mesh.metric(mesh.ports[1], issued).await? == 0.0, "the first one signed something");
    ensure!(mesh.metric(mesh.ports[3], issued).await? >= 2.0, "the external authority signed nothing");
    ensure!(
        mesh.metric(mesh.ports[1], "meltemi_forwarded_csrs_total{result=\"answered\"}").await? >= 2.0,
        "not counted"
    );

    external.stop()?;
    let before = mesh.certificate().await?;
    mesh.until("a renewal to fail", async || {
        mesh.log("agent").is_ok_and(|log| log.contains("cannot obtain a certificate"))
    })
    .await?;
    ensure!(mesh.page(mesh.admin, "/ready").await?.contains("LIVE"), "Envoy did not survive");
    ensure!(mesh.certificate().await? == before, "the certificate went before its time");
    let _external = mesh.start_external()?;
    mesh.until("a certificate after the outage", async || mesh.certificate().await.is_ok_and(|now| now != before))
        .await?;
    ensure!(mesh.metric(mesh.ports[1], issued).await? == 0.0, "the first one signed something");
    mesh.check_no_secret_is_disclosed().await
}

const OBJECTS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}, annotations: {sidecar.istio.io/interceptionMode: NONE}}
spec: {serviceAccountName: cart, containers: [{name: app}]}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}], conditions: [{type: Ready, status: \"True\"}]}
";

struct Mesh {
    folder: TempDir,
    /// Secure and monitoring port of the first, then of the external one.
    ports: [u16; 4],
    admin: u16,
}

impl Mesh {
    /// Root, serving certificate and token are made here: what an operator would mount.
    fn new() -> Result<Mesh> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().context("in a folder")?)?;
            fs::write(path, text).context("write")
        };
        let authority = TestCa::new()?;
        let serving = authority.host_certificate(NAME)?;
        write("objects/mesh.yaml", OBJECTS)?;
        write("nothing/empty.yaml", "")?;
        write("cacerts/ca-cert.pem", &authority.root())?;
        write("cacerts/root-cert.pem", &authority.root())?;
        write("cacerts/cert-chain.pem", "")?;
        write("cacerts/ca-key.pem", &authority.key())?;
        write("tls.crt", &serving.certificate)?;
        write("tls.key", &serving.key)?;
        let issuer = JwtIssuer::default();
        write("keys.json", &issuer.keys())?;
        let claims = json!({
            "iss": "elsewhere", "sub": "system:serviceaccount:shop:cart", "aud": ["istio-ca"],
            "iat": 1_700_000_000, "exp": 4_000_000_000_u64,
        });
        write("token", &issuer.token(&claims))?;
        let mut ports = [0; 4];
        for port in &mut ports {
            *port = port::reserve()?;
        }
        Ok(Mesh { folder, ports, admin: port::reserve()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn serve(&self, objects: &str, state: &str, ports: &[u16]) -> Result<Command> {
        let mut command = Command::new(server::program()?);
        command.args(["serve", "--grpcAddr=", "--httpAddr=", "--httpsAddr=", "--shutdownDuration=1s"]);
        command.arg(format!("--secureGRPCAddr=127.0.0.1:{}", ports[0]));
        command.arg(format!("--monitoringAddr=127.0.0.1:{}", ports[1]));
        command.arg("--config").arg(self.path(objects)).arg("--stateDir").arg(self.path(state));
        command.arg("--jwks").arg(self.path("keys.json"));
        Ok(command)
    }

    fn start_external(&self) -> Result<Process> {
        let mut command = self.serve("nothing", "external-state", &self.ports[2..])?;
        self.started(command.env("ROOT_CA_DIR", self.path("cacerts")), "external", self.ports[2])
    }

    fn start_first(&self) -> Result<Process> {
        let mut command = self.serve("objects", "state", &self.ports[..2])?;
        command.arg("--tlsCertFile").arg(self.path("tls.crt")).arg("--tlsKeyFile").arg(self.path("tls.key"));
        command.env("EXTERNAL_CA", "true").env("CA_ADDR", format!("127.0.0.1:{}", self.ports[2]));
        command.env("CA_ROOT_CA", self.path("cacerts/root-cert.pem")).env("MELTEMI_CA_SERVER_NAME", NAME);
        self.started(&mut command, "first", self.ports[0])
    }

    fn started(&self, command: &mut Command, log: &str, port: u16) -> Result<Process> {
        let process = Process::start(command, &self.path(log))?;
        eventually_blocking(&format!("{log} to listen"), || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(process)
    }

    fn start_agent(&self, envoy: &Path) -> Result<Process> {
        let mut command = Command::new(server::program()?);
        command.args(["agent", "--proxy", "cart-1.shop", "--service-account", "cart", "--key", "P-256"]);
        command.args(["--server", &format!("127.0.0.1:{}", self.ports[0]), "--server-name", NAME]);
        command.args(["--admin", &format!("127.0.0.1:{}", self.admin), "--drain", "100ms", "--lifetime", LIFETIME]);
        for (flag, name) in
            [("--config", "objects"), ("--root", "cacerts/root-cert.pem"), ("--token", "token"), ("--workdir", "work")]
        {
            command.arg(flag).arg(self.path(name));
        }
        command.arg("--envoy").arg(envoy).args(["--", "-l", "warn"]);
        Process::start(&mut command, &self.path("agent"))
    }

    async fn page(&self, port: u16, path: &str) -> Result<String> {
        Ok(http_client::send_one(&HttpRequest::new(([127, 0, 0, 1], port).into(), "localhost", path)).await?.body)
    }

    async fn certificate(&self) -> Result<Value> {
        let page: Value = serde_json::from_str(&self.page(self.admin, "/certs").await?)?;
        let all = page["certificates"].as_array().context("no certificates")?.clone();
        let own = all.into_iter().find_map(|each| each["cert_chain"].as_array()?.first().cloned());
        own.context("no certificate")
    }

    /// Row A-19, where requests and tokens pass through.
    async fn check_no_secret_is_disclosed(&self) -> Result<()> {
        let secrets = ["token", "cacerts/ca-key.pem", "tls.key"].map(|name| self.path(name));
        for (name, port, page) in [
            ("first-metrics", self.ports[1], "/metrics"),
            ("external-metrics", self.ports[3], "/metrics"),
            ("envoy-dump", self.admin, "/config_dump"),
        ] {
            fs::write(self.path(name), self.page(port, page).await?)?;
        }
        let written = ["first", "external", "agent", "first-metrics", "external-metrics", "envoy-dump"];
        let found = testkit::scan::leaks(&secrets, &written.map(|name| self.path(name)))?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(())
    }

    async fn metric(&self, port: u16, name: &str) -> Result<f64> {
        let page = self.page(port, "/metrics").await?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        line.with_context(|| format!("no metric {name}"))
    }

    fn log(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.path(name))?)
    }

    fn logs(&self) -> String {
        ["first", "external", "agent"].map(|name| format!("{name}:\n{}", self.log(name).unwrap_or_default())).join("\n")
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) -> Result<()> {
        eventually(what, async || Ok(holds().await)).await
    }
}

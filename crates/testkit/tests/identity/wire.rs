//! The other end of a sidecar's TLS: `openssl`, with certificates of the mesh's authority or of a foreign one.

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use ca::{KeyType, PrivateKey};
use testkit::process::Process;
use testkit::test_ca::TestCa;

use crate::shared::{APP_PORT, CONTROL_PLANE, PORT, SERVER_NAME, Turn, pod_address};

/// Files with a certificate and its key.
pub(crate) struct Credentials {
    leaf: PathBuf,
    key: PathBuf,
    /// What stands between the leaf and the root; may be empty.
    between: PathBuf,
}

impl Credentials {
    /// From the mesh's authority, by the call that agents make.
    pub(crate) async fn issued(turn: &Turn<'_>, namespace: &str, account: &str, lifetime: Duration) -> Result<Self> {
        let identity = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}").parse()?;
        let key = PrivateKey::generate(KeyType::P256)?;
        let csr = key.csr(&identity)?;
        let signer = agent::CaEndpoint {
            address: format!("{CONTROL_PLANE}:{PORT}"),
            name: Some(SERVER_NAME.to_owned()),
            roots: turn.path("state/ca/ca-cert.pem"),
            learned: Vec::new(),
        };
        let authority = agent::CaClient { signer, token: turn.token(namespace, account)? };
        let chain = turn.outside().spawn(async move { authority.certificate(&csr, lifetime).await }).await??;
        let certificate =
            agent::WorkloadCertificate::new(key, &chain, SystemTime::now()).map_err(anyhow::Error::msg)?;
        let (leaf, between) = certificate.chain.split_first().context("a chain begins with its leaf")?;
        let between: String = between.iter().map(ca::Certificate::pem).collect();
        Credentials::written(turn, account, &leaf.pem(), &certificate.key.pem(), &between)
    }

    /// The right name, signed by somebody else.
    pub(crate) fn foreign(turn: &Turn<'_>, namespace: &str, account: &str) -> Result<Self> {
        let leaf =
            TestCa::new()?.workload_certificate(&format!("spiffe://cluster.local/ns/{namespace}/sa/{account}"))?;
        Credentials::written(turn, &format!("foreign-{account}"), &leaf.certificate, &leaf.key, "")
    }

    fn written(turn: &Turn<'_>, name: &str, leaf: &str, key: &str, between: &str) -> Result<Self> {
        let write = |ending: &str, text: &str| {
            let file = turn.path(&format!("{name}.{ending}"));
            std::fs::write(&file, text).map(|()| file)
        };
        Ok(Credentials { leaf: write("pem", leaf)?, key: write("key", key)?, between: write("between.pem", between)? })
    }

    /// openssl sends nothing but the leaf of the first file.
    fn shown_by(&self, openssl: &mut Command) -> Result<()> {
        openssl.arg("-cert").arg(&self.leaf).arg("-key").arg(&self.key);
        if std::fs::metadata(&self.between)?.len() > 0 {
            openssl.arg("-cert_chain").arg(&self.between);
        }
        Ok(())
    }
}

/// What a client outside of the mesh sees on a workload's port: certificates and answer, or the alert.
pub(crate) fn seen_by_client(turn: &Turn<'_>, account: &str, own: Option<&Credentials>) -> Result<String> {
    let mut command = turn.command_outside("openssl");
    let address: Ipv4Addr = pod_address(account);
    command.args(["s_client", "-connect", &format!("{address}:{APP_PORT}"), "-alpn", "istio-http/1.1", "-ign_eof"]);
    command.arg("-CAfile").arg(turn.path("state/ca/ca-cert.pem"));
    if let Some(own) = own {
        own.shown_by(&mut command)?;
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {account}.shop\r\nConnection: close\r\n\r\n");
    exchange(&mut command, &request)
}

/// What a client sees of the control plane's own certificate.
pub(crate) fn seen_of_server(turn: &Turn<'_>) -> Result<String> {
    let mut command = turn.command_outside("openssl");
    command.args(["s_client", "-connect", &format!("{CONTROL_PLANE}:{PORT}"), "-alpn", "h2"]);
    exchange(command.arg("-CAfile").arg(turn.path("state/ca/ca-cert.pem")), "")
}

/// The text of the names in the first certificate of a text.
pub(crate) fn names(text: &str) -> Result<String> {
    let mut command = Command::new("openssl");
    command.args(["x509", "-noout", "-ext", "subjectAltName"]);
    let at = text.find("-----BEGIN CERTIFICATE-----").with_context(|| format!("no certificate in {text}"))?;
    exchange(&mut command, &text[at..])
}

/// A server that tells in its answer which certificate the client showed.
pub(crate) fn server(turn: &Turn<'_>, pod: &str, own: &Credentials) -> Result<Process> {
    let mut command = turn.command_in(pod, "openssl");
    command.args(["s_server", "-accept", &APP_PORT.to_string(), "-www", "-Verify", "2"]);
    command.arg("-CAfile").arg(turn.path("state/ca/ca-cert.pem"));
    own.shown_by(&mut command)?;
    Process::start(&mut command, &turn.path("openssl.log"))
}

/// Both of its outputs.
fn exchange(command: &mut Command, text: &str) -> Result<String> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("no openssl")?;
    let mut input = child.stdin.take().context("piped above")?;
    // It may have ended before it read all.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    let out = child.wait_with_output()?;
    let output = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(!output.is_empty(), "openssl printed nothing");
    Ok(output)
}

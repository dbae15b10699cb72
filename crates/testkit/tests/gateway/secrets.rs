//! Certificates from Secrets: delivered, mutual, late, rotated under load, broken, and kept from those who may not have them.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use testkit::test_ca::{LeafCertificate, TestCa};
use testkit::{environment, port, say, skip};
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use super::live::{Live, Proxy};
use super::{HOST, backend, curl, expect};

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Two authorities sign in turns; clients trust both.
const ROTATIONS: usize = 5;

#[test]
fn certificates_come_from_secrets() {
    if environment::envoy().is_none() {
        return skip("certificates of a gateway: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    for tool in ["curl", "openssl"] {
        if Command::new(tool).arg("version").stdin(Stdio::null()).output().is_err() {
            return skip(&format!("certificates of a gateway: no {tool}"));
        }
    }
    run().unwrap_or_else(|e| panic!("{e:#}"));
}

struct Ports {
    simple: u16,
    mutual: u16,
    late: u16,
    stolen: u16,
    cart: u16,
}

impl Ports {
    fn filled_in(&self, text: &str) -> String {
        let ports = [
            ("SIMPLE_PORT", self.simple),
            ("MUTUAL_PORT", self.mutual),
            ("LATE_PORT", self.late),
            ("STOLEN_PORT", self.stolen),
            ("CART_PORT", self.cart),
        ];
        ports.iter().fold(text.to_owned(), |text, (word, port)| text.replace(word, &port.to_string()))
    }
}

#[tokio::main]
async fn run() -> Result<()> {
    let ports = Ports {
        cart: backend("cart").await?,
        simple: port::reserve()?,
        mutual: port::reserve()?,
        late: port::reserve()?,
        stolen: port::reserve()?,
    };
    tokio::task::spawn_blocking(move || check(&ports)).await?
}

fn check(ports: &Ports) -> Result<()> {
    let authorities = [TestCa::new()?, TestCa::new()?];
    let (site, both) = (authorities[0].host_certificate(HOST)?, authorities[0].host_certificate(HOST)?);
    let mut live = Live::start(&[
        ("mesh.yaml", &ports.filled_in(include_str!("secrets.yaml"))),
        ("site.yaml", &tls_secret("site", &site)),
        ("both.yaml", &opaque_secret("both", &both, &authorities[0].root())),
    ])?;
    let client = Client::new(&live, &authorities)?;
    live.proxy(&Proxy { name: "edge-1.edge", kind: "router", account: "edge", app: "edge" })?;
    live.proxy(&Proxy { name: "bank-1.bank", kind: "router", account: "bank", app: "bank" })?;
    live.wait("a certificate", || client.get(ports.simple, &[]).is_ok())?;
    expect(&client.get(ports.simple, &[])?, "200 cart")?;

    live.wait("mutual TLS", || client.get(ports.mutual, &client.pair()).is_ok())?;
    expect(&client.get(ports.mutual, &client.pair())?, "200 cart")?;
    let refused = client.get(ports.mutual, &[]);
    ensure!(refused.is_err(), "a client without a certificate got {refused:?}");
    let refused = client.get(ports.mutual, &client.stranger());
    ensure!(refused.is_err(), "a client of another authority got {refused:?}");

    late(&live, &client, &authorities[0], ports)?;
    let served = rotate(&live, &client, &authorities, ports)?;
    let newest = broken(&live, &client, &authorities, ports)?;
    ensure!(serial(ports.simple)? == newest, "the router does not show the newest certificate");
    ensure!(client.get(ports.stolen, &[]).is_err(), "a router of another namespace has the certificate");
    ensure!(live.log("server").contains("it is of another namespace"), "nothing was logged:\n{}", live.log("server"));
    silence(&live)?;
    hidden(&live, &[&site, &both])?;
    say(&format!("gateway: {served} requests over {ROTATIONS} rotations, and a certificate that came late"));
    Ok(())
}

/// A server that names a Secret before there is one; Envoy would not even start with it.
const LATE: &str = "\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: late, namespace: edge}
spec:
  selector: {app: edge}
  servers:
  - port: {number: LATE_PORT, name: https-late, protocol: HTTPS}
    bind: 127.0.0.1
    hosts: [shop.example.com]
    tls: {mode: SIMPLE, credentialName: late}
";

/// Its listener opens when the Secret is there.
fn late(live: &Live, client: &Client, authority: &TestCa, ports: &Ports) -> Result<()> {
    live.write("late-gateway.yaml", &ports.filled_in(LATE))?;
    live.wait("a word on what is missing", || live.log("server").contains("there is no Secret edge/late"))?;
    ensure!(client.get(ports.late, &[]).is_err(), "there is no certificate for this port yet");
    live.write("late.yaml", &tls_secret("late", &authority.host_certificate(HOST)?))?;
    live.wait("the late certificate", || client.get(ports.late, &[]).is_ok())
}

/// Certificates are replaced while requests go on; each request is a handshake. Answers how many there were.
fn rotate(live: &Live, client: &Client, authorities: &[TestCa; 2], ports: &Ports) -> Result<usize> {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let asking = {
        let (client, port, stop, count) = (client.clone(), ports.simple, stop.clone(), count.clone());
        std::thread::spawn(move || -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                expect(&client.get(port, &[])?, "200 cart")?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    };
    let rotated = || -> Result<()> {
        for round in 1..=ROTATIONS {
            let before = serial(ports.simple)?;
            live.write("site.yaml", &tls_secret("site", &authorities[round % 2].host_certificate(HOST)?))?;
            live.wait("the next certificate", || serial(ports.simple).is_ok_and(|now| now != before))?;
        }
        Ok(())
    };
    let outcome = rotated();
    stop.store(true, Ordering::Relaxed);
    asking.join().expect("the client does not panic").context("a handshake failed")?;
    outcome?;
    let served = count.load(Ordering::Relaxed);
    ensure!(served > ROTATIONS, "only {served} requests");
    Ok(served)
}

/// A key of another certificate is not sent: the last good pair stays. Answers the serial number of the pair that follows.
fn broken(live: &Live, client: &Client, authorities: &[TestCa; 2], ports: &Ports) -> Result<String> {
    let before = serial(ports.simple)?;
    let (one, two) = (authorities[0].host_certificate(HOST)?, authorities[0].host_certificate(HOST)?);
    live.write("site.yaml", &tls_secret("site", &LeafCertificate { certificate: one.certificate, key: two.key }))?;
    let word = "Secret edge/site, data[tls.crt] and data[tls.key]: the private key does not belong to the certificate";
    live.wait("a word on the broken pair", || live.log("server").contains(word))?;
    ensure!(serial(ports.simple)? == before, "another certificate than the last good one");
    expect(&client.get(ports.simple, &[])?, "200 cart")?;
    live.write("site.yaml", &tls_secret("site", &authorities[0].host_certificate(HOST)?))?;
    live.wait("a certificate after the broken one", || serial(ports.simple).is_ok_and(|now| now != before))?;
    serial(ports.simple)
}

/// On the port without TLS nobody is known: other types are answered, secrets are not.
fn silence(live: &Live) -> Result<()> {
    let address = live.plain;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = wire::envoy::config::core::v3::Node {
            id: "router~127.0.0.1~edge-1.edge~edge.svc.cluster.local".to_owned(),
            ..Default::default()
        };
        let names = ["kubernetes://site", "kubernetes://edge/site", "kubernetes://both-cacert", "ROOTCA"];
        let secrets = DiscoveryRequest {
            node: Some(node),
            type_url: SECRET.to_owned(),
            resource_names: names.map(str::to_owned).to_vec(),
            ..Default::default()
        };
        let io = tokio::net::TcpStream::connect(address).await?;
        let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
        let (sender, mut reader) = testkit::grpc::call(io, "meltemi", path, &secrets).await?;
        sender.send(&DiscoveryRequest { type_url: CLUSTER.to_owned(), ..Default::default() });
        let first = reader.next::<DiscoveryResponse>().await?.context("the stream ended")?;
        ensure!(first.type_url == CLUSTER, "an unknown caller was answered about {}", first.type_url);
        let more = tokio::time::timeout(Duration::from_secs(1), reader.next::<DiscoveryResponse>()).await;
        ensure!(more.is_err(), "an unknown caller was answered");
        Ok(())
    })
}

/// Keys are in no log and on no page.
fn hidden(live: &Live, leaves: &[&LeafCertificate]) -> Result<()> {
    let dump = live.page("/debug/config_dump?proxyID=edge-1.edge")?;
    ensure!(
        dump.contains("kubernetes://site") && dump.contains("W3JlZGFjdGVkXQ=="),
        "the page lacks the secrets: {dump}"
    );
    let pages = ["/debug/syncz", "/debug/connections", "/debug/pushes", "/metrics"];
    let pages: String = pages.iter().map(|path| live.page(path).unwrap_or_default()).collect();
    let all = format!("{dump}{pages}{}", live.logs());
    for leaf in leaves {
        let body: String = leaf.key.lines().filter(|line| !line.starts_with('-')).collect();
        let whole = STANDARD.encode(&leaf.key);
        for secret in [&body[..40], &body[body.len() - 40..], &whole[40..80]] {
            ensure!(!all.contains(secret), "a key is in a log or on a page");
        }
    }
    ensure!(!all.contains("PRIVATE KEY"), "a key is in a log or on a page");
    Ok(())
}

#[derive(Clone)]
struct Client {
    roots: String,
    pair: [String; 2],
    stranger: [String; 2],
}

impl Client {
    fn new(live: &Live, authorities: &[TestCa; 2]) -> Result<Client> {
        let keep = |name: &str, text: String| -> Result<String> {
            let path = live.path(name);
            std::fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let pair = |name: &str, authority: &TestCa| -> Result<[String; 2]> {
            let leaf = authority.workload_certificate("spiffe://example.com/client")?;
            Ok([keep(&format!("{name}.pem"), leaf.certificate)?, keep(&format!("{name}.key"), leaf.key)?])
        };
        Ok(Client {
            roots: keep("roots.pem", authorities.iter().map(TestCa::root).collect())?,
            pair: pair("client", &authorities[0])?,
            stranger: pair("stranger", &authorities[1])?,
        })
    }

    fn pair(&self) -> [&str; 4] {
        ["--cert", &self.pair[0], "--key", &self.pair[1]]
    }

    fn stranger(&self) -> [&str; 4] {
        ["--cert", &self.stranger[0], "--key", &self.stranger[1]]
    }

    fn get(&self, port: u16, more: &[&str]) -> Result<String> {
        curl(&format!("https://{HOST}:{port}/"), &[&["--cacert", &self.roots], more].concat())
    }
}

/// Of the certificate that is shown on a port.
fn serial(port: u16) -> Result<String> {
    let shown = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", HOST])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&shown.stdout);
    let begin = text.find("-----BEGIN CERTIFICATE-----").context("no certificate was shown")?;
    let end = text.find("-----END CERTIFICATE-----").context("no certificate was shown")?;
    Ok(text[begin..end].to_owned())
}

pub(crate) fn tls_secret(name: &str, leaf: &LeafCertificate) -> String {
    let (chain, key) = (STANDARD.encode(&leaf.certificate), STANDARD.encode(&leaf.key));
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: edge}}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: {chain}\n  tls.key: {key}\n"
    )
}

/// With the authorities of clients beside the key.
fn opaque_secret(name: &str, leaf: &LeafCertificate, roots: &str) -> String {
    let [chain, key, roots] = [&leaf.certificate, &leaf.key, roots].map(|text| STANDARD.encode(text));
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: edge}}\ndata:\n  cert: {chain}\n  key: {key}\n  cacert: {roots}\n"
    )
}

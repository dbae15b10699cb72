//! Attacks on the endpoints that change a running server, and root rotation as an operator does it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use testkit::grpc;
use testkit::wait::{DEADLINE, eventually_blocking};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

use crate::run::{Ran, SHOP, as_text, folder, path, run};
use crate::serve::Server;

const ADMIN: &str = "istio-system/meltemi-admin";
const ON: (&str, &str) = ("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "true");
const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

struct SecureServer {
    server: Server,
    _objects: TempDir,
    state: TempDir,
}

impl SecureServer {
    fn start(flags: &[&str], env: &[(&str, &str)]) -> SecureServer {
        let (objects, state) = (folder(&[("shop.yaml", SHOP)]), folder(&[]));
        let secure = ["--secureGRPCAddr=127.0.0.1:0", "--stateDir", path(&state)];
        let server = Server::start_with(&objects, &[&secure, flags].concat(), env);
        SecureServer { server, _objects: objects, state }
    }

    fn token(&self, account: &str, more: &[&str]) -> String {
        let words = ["token", "create", "--service-account", account, "--stateDir", path(&self.state)];
        let made = run(&[&words, more].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    }

    /// `meltemi ca ..`, with a token of this account.
    fn ca(&self, words: &[&str], account: Option<&str>) -> Ran {
        let url = format!("http://{}", self.server.port("--monitoringAddr"));
        let file = self.state.path().join("token");
        let mut all = [&["ca"], words, &["--server", &url]].concat();
        if let Some(account) = account {
            std::fs::write(&file, self.token(account, &[])).expect("a file");
            all.extend(["--token", as_text(&file)]);
        }
        run(&all)
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ca(&["status", "-o=json"], None).stdout).expect("a status")
    }

    /// What a client gets for these lines of a request.
    fn sent(&self, flag: &str, lines: &[String]) -> (String, String) {
        sent(self.server.port(flag), lines)
    }

    /// No stage has begun.
    fn assert_settled(&self) {
        assert!(!self.state.path().join("ca/next-cert.pem").exists(), "a root was made");
        assert_eq!(self.status()["stage"], "settled");
    }
}

fn sent(address: &str, lines: &[String]) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("an open port");
    stream.set_read_timeout(Some(DEADLINE)).expect("not zero");
    write!(stream, "{}\r\nConnection: close\r\n\r\n", lines.join("\r\n")).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a header");
    (head.split_whitespace().nth(1).expect("a status").to_owned(), body.to_owned())
}

/// What a web page in the operator's browser can send, with and without what it cannot know.
#[test]
fn cross_site_and_unauthenticated_requests_on_loopback_change_nothing() {
    let secure = SecureServer::start(&[], &[ON]);
    let id = secure.status()["id"].as_str().expect("an id").to_owned();
    let token = format!("Authorization: Bearer {}", secure.token(ADMIN, &[]));
    let admin = "X-Meltemi-Admin: 1".to_owned();
    let target = format!("/debug/ca/rotate?from={id}&force=true");
    let post = format!("POST {target} HTTP/1.1");
    for flag in ["--httpAddr", "--monitoringAddr"] {
        let own = format!("Host: localhost:{}", secure.server.port(flag).rsplit_once(':').expect("a port").1);
        let with = |lines: &[&str]| -> Vec<String> {
            [post.as_str()].iter().chain(lines).map(|line| (*line).to_owned()).collect()
        };
        let form = "Content-Type: application/x-www-form-urlencoded";
        let wrong = format!("Authorization: Bearer {}", secure.token("istio-system/istio-ingressgateway", &[]));
        let elsewhere = format!("Authorization: Bearer {}", secure.token(ADMIN, &["--audience", "vault"]));
        let cases: Vec<(&str, Vec<String>, &str)> = vec![
            ("a form", with(&[&own, form, "Origin: http://evil.example", "Content-Length: 0"]), "403"),
            ("a form without an origin", with(&[&own, form, "Content-Length: 0"]), "403"),
            ("a bare request", with(&[&own]), "403"),
            ("no token", with(&[&own, &admin]), "401"),
            ("junk", with(&[&own, &admin, "Authorization: Bearer a.b.c"]), "401"),
            ("another account", with(&[&own, &admin, &wrong]), "403"),
            ("another audience", with(&[&own, &admin, &elsewhere]), "401"),
            (
                "a forwarded certificate",
                with(&[
                    &own,
                    &admin,
                    "x-forwarded-client-cert: URI=spiffe://cluster.local/ns/istio-system/sa/meltemi-admin",
                ]),
                "401",
            ),
            ("no header", with(&[&own, &token]), "403"),
            ("a form with all", with(&[&own, &admin, &token, form, "Content-Length: 0"]), "415"),
            ("text with all", with(&[&own, &admin, &token, "Content-Type: text/plain", "Content-Length: 0"]), "415"),
            ("another origin", with(&[&own, &admin, &token, "Origin: http://evil.example"]), "403"),
            ("no origin to tell", with(&[&own, &admin, &token, "Origin: null"]), "403"),
            ("rebound", with(&["Host: evil.example", &admin, &token]), "403"),
            (
                "rebound with its origin",
                with(&["Host: evil.example", &admin, &token, "Origin: http://evil.example"]),
                "403",
            ),
            ("0.0.0.0", with(&["Host: 0.0.0.0:15014", &admin, &token]), "403"),
            ("GET", vec![format!("GET {target} HTTP/1.1"), own.clone(), admin.clone(), token.clone()], "405"),
            ("PUT", vec![format!("PUT {target} HTTP/1.1"), own.clone(), admin.clone(), token.clone()], "405"),
            (
                "a stale stage",
                vec![
                    "POST /debug/ca/rotate?from=settled&force=true HTTP/1.1".to_owned(),
                    own.clone(),
                    admin.clone(),
                    token.clone(),
                ],
                "409",
            ),
            (
                "no stage",
                vec!["POST /debug/ca/rotate?force=true HTTP/1.1".to_owned(), own.clone(), admin.clone(), token.clone()],
                "400",
            ),
        ];
        for (what, lines, status) in cases {
            let (got, body) = secure.sent(flag, &lines);
            assert_eq!(got, status, "{flag}: {what}: {body}");
        }
        let read = |host: &str| secure.sent(flag, &["GET /debug/ca HTTP/1.1".to_owned(), format!("Host: {host}")]).0;
        assert_eq!(
            (read("evil.example"), read("localhost:1"), read("127.0.0.1")),
            ("403".into(), "200".into(), "200".into())
        );
        secure.assert_settled();
    }
}

#[test]
fn admin_endpoints_are_off_by_default() {
    let secure = SecureServer::start(&[], &[]);
    let rejected = secure.ca(&["rotate", "--force"], Some(ADMIN));
    assert_eq!(rejected.code, Some(2));
    assert!(
        rejected.stderr.contains("403") && rejected.stderr.contains("UNSAFE_ENABLE_ADMIN_ENDPOINTS"),
        "{rejected:?}"
    );
    secure.assert_settled();
}

#[test]
fn the_command_needs_a_token_of_an_allowed_account() {
    let secure = SecureServer::start(&[], &[ON, ("MELTEMI_ADMIN_SERVICE_ACCOUNTS", "ops/root, ops/second")]);
    for (account, why) in [(None, "401"), (Some("ops/other"), "may not administrate"), (Some(ADMIN), "ops/second")] {
        let rejected = secure.ca(&["rotate", "--force"], account);
        assert!(rejected.code == Some(2) && rejected.stderr.contains(why), "{account:?}: {rejected:?}");
    }
    secure.assert_settled();
    let done = secure.ca(&["rotate", "--force"], Some("ops/second"));
    assert!(done.code == Some(0) && done.stdout.contains("stage     announced"), "{done:?}");
}

#[test]
fn a_rotation_without_proxies_needs_force_and_warns() {
    let secure = SecureServer::start(&[], &[ON]);
    let rejected = secure.ca(&["rotate"], Some(ADMIN));
    assert_eq!(rejected.code, Some(2));
    assert!(
        rejected.stderr.contains("0 workloads are connected") && rejected.stderr.contains("--force"),
        "{rejected:?}"
    );
    secure.assert_settled();
    for stage in ["announced", "switched", "settled"] {
        let rejected = secure.ca(&["rotate"], Some(ADMIN));
        assert_eq!(rejected.code, Some(2), "before {stage}: {rejected:?}");
        let done = secure.ca(&["rotate", "--force"], Some(ADMIN));
        assert!(done.code == Some(0) && done.stdout.contains(&format!("stage     {stage}")), "{done:?}");
        assert!(done.stderr.contains("warning: --force advances"), "{done:?}");
        assert!(done.stderr.contains("at least 1 must"), "what is missing: {done:?}");
    }
    let (_, log) = secure.server.end(Signal::SIGTERM);
    let warned = |line: &&str| {
        line.contains("WARN") && line.contains("advancing without evidence (--force)") && line.contains(ADMIN)
    };
    assert_eq!(log.lines().filter(warned).count(), 3, "{log}");
}

#[test]
fn changing_log_levels_needs_a_token() {
    let port = testkit::port::reserve().expect("a port");
    let secure = SecureServer::start(&[&format!("--ctrlz_port={port}")], &[ON]);
    let token = format!("Authorization: Bearer {}", secure.token(ADMIN, &[]));
    let body = "{\"output_level\": \"debug\"}";
    let put = |more: &[&str]| {
        let mut lines = vec!["PUT /scopej/ads HTTP/1.1".to_owned(), "Host: localhost".to_owned()];
        lines.extend(more.iter().map(|line| (*line).to_owned()));
        lines.push(format!("Content-Length: {}", body.len()));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("an open port");
        write!(stream, "{}\r\nConnection: close\r\n\r\n{body}", lines.join("\r\n")).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split_whitespace().nth(1).expect("a status").to_owned()
    };
    assert_eq!(put(&[]), "403");
    assert_eq!(put(&["X-Meltemi-Admin: 1"]), "401");
    assert_eq!(put(&["X-Meltemi-Admin: 1", &token, "Origin: http://evil.example"]), "403");
    let level = || sent(&format!("127.0.0.1:{port}"), &["GET /scopej/ads HTTP/1.1".to_owned(), "Host: x".to_owned()]).1;
    assert!(level().contains("\"output_level\":\"info\""), "{}", level());
    assert_eq!(put(&["X-Meltemi-Admin: 1", &token, "Content-Type: application/json"]), "202");
    assert!(level().contains("\"output_level\":\"debug\""), "{}", level());
}

/// A workload with a certificate of the mesh.
struct Workload {
    signer: agent::CaEndpoint,
    token: String,
    account: &'static str,
}

impl Workload {
    fn new(secure: &SecureServer, account: &'static str) -> Workload {
        let signer = agent::CaEndpoint {
            address: secure.server.port("--secureGRPCAddr").to_owned(),
            name: Some("istiod.istio-system.svc".to_owned()),
            roots: secure.state.path().join("ca/ca-cert.pem"),
            learned: Vec::new(),
        };
        Workload { signer, token: secure.token(&format!("shop/{account}"), &[]), account }
    }

    /// Key and certificate, and the roots that came with it.
    async fn renewed(&mut self) -> (ca::PrivateKey, ca::Certificate) {
        let key = ca::PrivateKey::generate(ca::KeyType::P256).expect("a key");
        let identity = format!("spiffe://cluster.local/ns/shop/sa/{}", self.account);
        let csr = key.csr(&identity.parse().expect("an identity")).expect("a request");
        let chain = self.signer.certificate(&self.token, &csr, Duration::from_secs(3600)).await.expect("a certificate");
        let mut chain = ca::bundle(&chain.concat()).expect("certificates");
        let leaf = chain.remove(0);
        self.signer.learned.extend(chain);
        (key, leaf)
    }

    /// A stream by mutual TLS, which is open as long as the answer is held.
    async fn connected(&mut self) -> (grpc::MessageSender, grpc::MessageReader) {
        let (key, leaf) = self.renewed().await;
        let mut roots = RootCertStore::empty();
        self.signer.learned.iter().for_each(|root| roots.add(root.der.clone()).expect("a root"));
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3").with_root_certificates(roots);
        let key = PrivateKeyDer::from_pem_slice(key.pem().as_bytes()).expect("a key");
        let mut config = builder.with_client_auth_cert(vec![leaf.der], key).expect("they belong together");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = tokio::net::TcpStream::connect(&self.signer.address).await.expect("an open port");
        let name = ServerName::try_from("istiod.istio-system.svc").expect("a name");
        let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("a handshake");
        let id = format!("sidecar~127.0.0.1~{}-1.shop~shop.svc.cluster.local", self.account);
        let node = Node { id, ..Node::default() };
        let type_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
        let request = DeltaDiscoveryRequest { node: Some(node), type_url, ..Default::default() };
        let (sender, mut reader) = grpc::call(socket, "istiod", ADS, &request).await.expect("a stream");
        reader.next::<DeltaDiscoveryResponse>().await.expect("clusters");
        (sender, reader)
    }
}

/// The way an operator goes, without Kubernetes: each stage waits until the workload has a certificate of it.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_and_evidence_the_root_is_rotated() {
    let secure = SecureServer::start(&[], &[ON]);
    let mut workload = Workload::new(&secure, "cart");
    let _streams = [workload.connected().await, workload.connected().await];
    assert_eq!(secure.status()["proxies"], 1, "two streams of a workload are one: {}", secure.status());
    let old = secure.status()["roots"][0]["key"].clone();
    for stage in ["announced", "switched", "settled"] {
        let few = secure.ca(&["rotate", "--min-workloads", "2"], Some(ADMIN));
        assert!(few.code == Some(2) && few.stderr.contains("at least 2 must"), "{few:?}");
        let done = secure.ca(&["rotate"], Some(ADMIN));
        assert!(done.code == Some(0) && done.stdout.contains(&format!("stage     {stage}")), "{done:?}");
        if stage != "settled" {
            let early = secure.ca(&["rotate"], Some(ADMIN));
            assert!(early.code == Some(2) && early.stderr.contains("99 % must"), "{early:?}");
            assert!(early.stderr.contains("cart-1.shop"), "who is waited for: {early:?}");
            workload.renewed().await;
            assert_eq!(secure.status()["coverage"], 1.0, "{}", secure.status());
        }
    }
    assert_ne!(secure.status()["roots"][0]["key"], old);
    assert_eq!(secure.status()["roots"].as_array().map(Vec::len), Some(1));
}

/// It is connected and never asks for a certificate. Once every certificate of the stage before has expired, nobody waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_never_renews_blocks_the_rotation_for_one_certificate_lifetime() {
    let secure = SecureServer::start(&[], &[ON, ("PILOT_WORKLOAD_CERT_TTL", "15s")]);
    let (mut good, mut stuck) = (Workload::new(&secure, "cart"), Workload::new(&secure, "stuck"));
    let (_good, _stuck) = (good.connected().await, stuck.connected().await);
    assert_eq!(secure.status()["proxies"], 2, "{}", secure.status());
    assert_eq!(secure.ca(&["rotate"], Some(ADMIN)).code, Some(0));
    good.renewed().await;
    let early = secure.ca(&["rotate"], Some(ADMIN));
    assert!(early.stderr.contains("1 of 2") && early.stderr.contains("stuck-1.shop"), "{early:?}");
    let expired = eventually_blocking("a certificate to expire", || Ok(secure.status()["expired"] == 1));
    expired.unwrap_or_else(|error| panic!("{error}: {}", secure.status()));
    let done = secure.ca(&["rotate"], Some(ADMIN));
    assert!(done.code == Some(0) && done.stdout.contains("stage     switched"), "{done:?}");
}

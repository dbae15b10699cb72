//! The secure port with clients that speak another protocol, have a wrong certificate (`openssl` is the client), or claim the node of another
//! workload.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use prost::Message;
use tempfile::TempDir;
use testkit::grpc;
use testkit::test_ca::{LeafCertificate, TestCa};
use testkit::wait::DEADLINE;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use wire::google::protobuf::{Struct, Value, value::Kind};

use crate::run::{SHOP, folder, path};
use crate::serve::Server;

fn secure(env: &[(&str, &str)]) -> (Server, TempDir, TempDir) {
    secure_with(SHOP, env)
}

fn secure_with(objects: &str, env: &[(&str, &str)]) -> (Server, TempDir, TempDir) {
    let (objects, state) = (folder(&[("objects.yaml", objects)]), folder(&[]));
    let flags = ["--secureGRPCAddr=127.0.0.1:0", "--stateDir", path(&state)];
    (Server::start_with(&objects, &flags, env), objects, state)
}

fn plugged(authority: &TestCa) -> TempDir {
    let root = authority.root();
    folder(&[
        ("ca-cert.pem", &root),
        ("root-cert.pem", &root),
        ("cert-chain.pem", ""),
        ("ca-key.pem", &authority.key()),
    ])
}

/// What openssl tells of a handshake.
fn handshake(address: &str, flags: &[&str]) -> String {
    s_client(address, flags, "")
}

/// `keys`: what is typed after the handshake; the last of them must be one that ends it, if there are any.
fn s_client(address: &str, flags: &[&str], keys: &str) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-alpn", "h2"]).args(flags);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("openssl");
    let mut typed = child.stdin.take().expect("piped");
    // It may have ended already.
    let _ = typed.write_all(keys.as_bytes());
    drop(typed);
    let out = child.wait_with_output().expect("openssl ends");
    [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

/// When the other side had enough of a handshake that comes byte by byte.
fn trickled(address: &str) -> Duration {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(address).expect("the port is open");
    // The head of a record with a greeting of 512 bytes.
    let _ = socket.write_all(&[22, 3, 1, 2, 0]);
    while begun.elapsed() < DEADLINE && socket.write_all(&[1]).is_ok() {
        std::thread::sleep(Duration::from_millis(200));
    }
    begun.elapsed()
}

/// Flags with which openssl shows a certificate.
fn shown(folder: &TempDir, name: &str, leaf: &LeafCertificate) -> [String; 4] {
    let write = |ending: &str, text: &str| {
        let file = folder.path().join(format!("{name}.{ending}"));
        std::fs::write(&file, text).expect("room in the folder");
        file.to_str().expect("temporary paths are UTF-8").to_owned()
    };
    ["-cert".to_owned(), write("pem", &leaf.certificate), "-key".to_owned(), write("key", &leaf.key)]
}

/// All that comes until the other side closes.
fn closed_after(address: &str, bytes: &[u8]) -> (String, Duration) {
    let begun = Instant::now();
    let mut socket = TcpStream::connect(address).expect("the port is open");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout that is not zero");
    socket.write_all(bytes).expect("room in the socket");
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = socket.read_to_end(&mut answer);
    (String::from_utf8_lossy(&answer).into_owned(), begun.elapsed())
}

/// Row P-13.
#[test]
fn a_wrong_certificate_or_an_old_protocol_ends_the_handshake() {
    let ours = TestCa::new().unwrap();
    let plugged = plugged(&ours);
    let (server, _objects, state) = secure(&[("ROOT_CA_DIR", path(&plugged))]);
    let address = server.port("--secureGRPCAddr");
    let slow: Vec<_> = [|address: &str| closed_after(address, b"").1, trickled]
        .map(|way: fn(&str) -> Duration| {
            let address = address.to_owned();
            std::thread::spawn(move || way(&address))
        })
        .into_iter()
        .collect();
    assert!(handshake(address, &["-tls1_2"]).contains("Cipher is ECDHE"), "an ordinary handshake");
    for old in ["-tls1", "-tls1_1"] {
        let output = handshake(address, &[old, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(output.contains("Cipher is (NONE)"), "{old}: {output}");
    }
    let name = "spiffe://cluster.local/ns/shop/sa/cart";
    for (what, leaf, alert) in [
        ("good", ours.workload_certificate(name).unwrap(), None),
        // Its root is named like ours.
        ("foreign", TestCa::new().unwrap().workload_certificate(name).unwrap(), Some("alert decrypt error")),
        ("expired", ours.expired_certificate(name).unwrap(), Some("alert certificate expired")),
        ("self-signed", LeafCertificate::self_signed(name).unwrap(), Some("alert unknown ca")),
    ] {
        let flags = shown(&state, what, &leaf);
        let output = handshake(address, &[&["-tls1_2"][..], &flags.each_ref().map(String::as_str)].concat());
        match alert {
            None => assert!(output.contains("Cipher is ECDHE") && !output.contains("alert"), "{what}: {output}"),
            Some(alert) => assert!(output.contains(alert), "{what}, with the right name: {output}"),
        }
    }
    let output = s_client(address, &["-tls1_2"], "R\nQ\n");
    let (_, after) = output.split_once("RENEGOTIATING").expect("openssl tried");
    assert!(after.contains(":error:"), "a second handshake on a connection: {output}");
    for waited in slow.into_iter().map(|thread| thread.join().unwrap()) {
        assert!((9..120).contains(&waited.as_secs()), "a handshake that does not go on was closed after {waited:?}");
    }
}

/// Row P-14.
#[test]
fn connections_of_another_protocol_are_closed() {
    let (server, _objects, _state) = secure(&[]);
    let (secure, plain) = (server.port("--secureGRPCAddr"), server.port("--grpcAddr"));
    let http1 = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    for (address, bytes) in [(secure, &http1[..]), (secure, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), (plain, http1)] {
        let (answer, took) = closed_after(address, bytes);
        assert!(!answer.contains("200 OK") && took < Duration::from_secs(9), "{address}: {answer:?} after {took:?}");
    }
    assert!(handshake(plain, &[]).contains("Cipher is (NONE)"), "TLS to the plaintext port");
    assert!(handshake(secure, &["-tls1_2"]).contains("Cipher is ECDHE"), "others are served all the while");
}

/// Two namespaces whose gateways run as service accounts of the same name.
const GATEWAYS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: gateway-1, namespace: bank, labels: {istio: bank}}, spec: {serviceAccountName: gateway, containers: []}, status: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gateway-1, namespace: shop, labels: {istio: shop}}, spec: {serviceAccountName: gateway, containers: []}, status: {phase: Running, podIP: 10.0.0.3, podIPs: [{ip: 10.0.0.3}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: bank}, spec: {selector: {istio: bank}, servers: [{port: {number: 8443, name: http, protocol: HTTP}, hosts: [bank.example]}]}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: web, namespace: shop}, spec: {selector: {istio: shop}, servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: [shop.example]}]}}
";

/// The names of the listeners that a node gets, or why it gets none.
async fn listeners(
    address: &str,
    root: &str,
    leaf: &LeafCertificate,
    id: &str,
    metadata: &[(&str, &str)],
) -> Result<Vec<String>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes())?)?;
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?];
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("istiod.istio-system.svc")?;
    let io = tokio::net::TcpStream::connect(address).await?;
    let io = TlsConnector::from(Arc::new(config)).connect(name, io).await?;
    let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields = metadata.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
    let metadata = Some(Struct { fields }.encode_to_vec().into());
    let listener = "type.googleapis.com/envoy.config.listener.v3.Listener";
    let first = DiscoveryRequest {
        node: Some(Node { id: id.to_owned(), metadata, ..Node::default() }),
        type_url: listener.to_owned(),
        ..Default::default()
    };
    let path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
    let (_sender, mut reader) = grpc::call(io, "istiod.istio-system.svc", path, &first).await?;
    let answer = tokio::time::timeout(Duration::from_secs(60), reader.next::<DiscoveryResponse>()).await??;
    let resources = answer.context("the stream ended")?.resources.into_iter();
    let names = resources.map(|any| wire::envoy::config::listener::v3::Listener::decode(any.value));
    Ok(names.collect::<Result<Vec<_>, _>>()?.into_iter().map(|listener| listener.name).collect())
}

/// A caller of `shop` with the node id of the gateway in `bank`, whose service account has the same name.
#[tokio::test]
async fn another_namespaces_gateway_is_not_served_to_a_caller_with_its_node_id() {
    let ours = TestCa::new().unwrap();
    let plugged = plugged(&ours);
    let leaf = ours.workload_certificate("spiffe://cluster.local/ns/shop/sa/gateway").unwrap();
    for (mode, is_strict) in [("compat", false), ("strict", true)] {
        let env = [("ROOT_CA_DIR", path(&plugged)), ("MELTEMI_XDS_IDENTITY", mode)];
        let (server, _objects, _state) = secure_with(GATEWAYS, &env);
        let address = server.port("--secureGRPCAddr");
        let root = ours.root();
        let ask = async |id: &str, more: &[(&str, &str)]| listeners(address, &root, &leaf, id, more).await;
        let honest = "router~10.0.0.3~gateway-1.shop~shop.svc.cluster.local";
        let own = ask(honest, &[("NAMESPACE", "shop"), ("INSTANCE_IPS", "10.0.0.3")]).await.unwrap();
        assert_eq!(own, ["0.0.0.0_8080"], "{mode}");
        for (id, more) in [
            ("router~10.0.0.2~gateway-1.bank~bank.svc.cluster.local", &[("NAMESPACE", "shop")][..]),
            ("router~10.0.0.2~gateway-1.bank~shop.svc.cluster.local", &[]),
            ("router~10.0.0.3~gateway-1.bank~nodot", &[("SERVICE_ACCOUNT", "gateway")]),
            ("router~10.0.0.2~gateway-1.bank~shop.svc.x", &[("INSTANCE_IPS", "not an address")]),
        ] {
            match ask(id, more).await {
                Ok(names) => assert!(!is_strict && names.is_empty(), "{mode}: {id} gets {names:?}"),
                Err(why) => {
                    let why = format!("{why:#}");
                    assert!(is_strict && why.contains("namespace \"bank\""), "{mode}: {id}: {why}");
                }
            }
        }
    }
}

//! curl through a live Envoy that is a gateway: routes, a redirect, TLS and mutual TLS with certificates from files, TLS that passes through.
//! With certificates from Secrets: `secrets`. With faulty objects among many: `among_many`. Out of the mesh: `egress`.

mod among_many;
mod egress;
mod live;
mod secrets;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::server::{self, MeltemiServer};
use testkit::test_ca::TestCa;
use testkit::{environment, port, say, sds, skip};
use tokio::net::TcpListener;

const HOST: &str = "shop.example.com";

#[test]
fn a_gateway_serves_what_its_objects_say() {
    if environment::envoy().is_none() {
        return skip("traffic through a gateway: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("traffic through a gateway: no curl");
    }
    server::program().unwrap();
    run().unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("files");
    let authority = TestCa::new()?;
    write_certificates(&authority, &files)?;
    let ports = Ports::new().await?;
    let objects = folder.path().join("objects");
    std::fs::create_dir(&objects)?;
    std::fs::write(objects.join("mesh.yaml"), ports.filled_in(include_str!("mesh.yaml"), &files))?;
    let mut server = MeltemiServer::start(&objects)?;

    let agent = folder.path().join("sds");
    let _secrets = sds::SdsStub::start(&agent, &authority, "spiffe://cluster.local/ns/edge/sa/edge")?;
    let proxy = CaseProxy::new(&json!({
        "name": "edge-1", "namespace": "edge", "type": "router", "ip": "127.0.0.1", "serviceAccount": "edge",
        "labels": { "app": "edge" },
    }))?;
    let bootstrap = Bootstrap { proxy: &proxy, ads: ServerAddress::Tcp(server.address), sds: agent };
    let mut envoy = Envoy::start(&environment::envoy().context("no Envoy")?, &[], &bootstrap)?;
    envoy.wait_live().await.with_context(|| server.log())?;
    let seen = tokio::task::spawn_blocking(move || check(&ports, &files)).await?;
    seen.with_context(|| envoy.log())?;
    say("gateway: routes, redirect, TLS, mutual TLS and pass-through TLS with curl");
    Ok(())
}

fn check(ports: &Ports, files: &Path) -> Result<()> {
    let root = files.join("root.pem");
    let trusting = ["--cacert", root.to_str().context("a path")?];
    let (pair, key) = (files.join("client.pem"), files.join("client.key"));
    let known = ["--cert", pair.to_str().context("a path")?, "--key", key.to_str().context("a path")?];
    let plain = |path: &str| curl(&format!("http://{HOST}:{}{path}", ports.plain), &[]);
    expect(&plain("/cart/1")?, "200 cart")?;
    expect(&plain("/other")?, "200 front")?;
    expect(&curl(&format!("http://other.example.com:{}/", ports.plain), &[])?, "404 ")?;
    expect(
        &curl(&format!("http://{HOST}:{}/cart", ports.moved), &["-w", "%{redirect_url}"])?,
        &format!("https://{HOST}:{}/cart", ports.moved),
    )?;
    let secure = |port: u16, more: &[&str]| curl(&format!("https://{HOST}:{port}/cart"), &[&trusting, more].concat());
    expect(&secure(ports.simple, &[])?, "200 cart")?;
    expect(&secure(ports.through, &[])?, "200 cart")?;
    expect(&secure(ports.mutual, &known)?, "200 cart")?;
    for (what, refused) in [
        ("a client without a certificate", secure(ports.mutual, &[])),
        ("a host that nobody serves", curl(&format!("https://other.example.com:{}/", ports.through), &trusting)),
        ("a client that trusts nobody", curl(&format!("https://{HOST}:{}/", ports.simple), &[])),
    ] {
        ensure!(refused.is_err(), "{what} got an answer: {refused:?}");
    }
    Ok(())
}

fn expect(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "got {found:?}, want {wanted:?}");
    Ok(())
}

/// Status and body. The host of the URL is this machine, whatever it is called.
fn curl(url: &str, more: &[&str]) -> Result<String> {
    let rest = url.split_once("://").context("a URL")?.1;
    let place = rest.split('/').next().unwrap_or_default();
    let written = if more.contains(&"-w") { &[][..] } else { &["-w", "%{http_code} "] };
    let out = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-o", "-", "--resolve", &format!("{place}:127.0.0.1")])
        .args(written)
        .args(more)
        .arg(url)
        .output()?;
    ensure!(out.status.success(), "{url}: {}", String::from_utf8_lossy(&out.stderr).trim());
    let text = String::from_utf8(out.stdout)?;
    // curl writes the body before what `-w` asks for.
    match text.strip_suffix(' ') {
        Some(text) if text.len() >= 3 => {
            let (body, status) = text.split_at(text.len() - 3);
            Ok(format!("{status} {body}"))
        }
        _ => Ok(text),
    }
}

struct Ports {
    plain: u16,
    moved: u16,
    simple: u16,
    mutual: u16,
    through: u16,
    cart: u16,
    front: u16,
}

impl Ports {
    async fn new() -> Result<Ports> {
        Ok(Ports {
            cart: backend("cart").await?,
            front: backend("front").await?,
            plain: port::reserve()?,
            moved: port::reserve()?,
            simple: port::reserve()?,
            mutual: port::reserve()?,
            through: port::reserve()?,
        })
    }

    fn filled_in(&self, text: &str, files: &Path) -> String {
        let ports = [
            ("PLAIN", self.plain),
            ("MOVED", self.moved),
            ("number: SIMPLE", self.simple),
            ("tls: SIMPLE", self.simple),
            ("number: MUTUAL", self.mutual),
            ("THROUGH,", self.through),
            ("CART", self.cart),
            ("FRONT", self.front),
        ];
        let text = text.replace("FILES", &files.display().to_string());
        ports.iter().fold(text, |text, (word, port)| {
            let number = word.split(": ").last().unwrap_or(word).trim_end_matches(',');
            text.replace(word, &word.replace(number, &port.to_string()))
        })
    }
}

/// Answers every request with its name; the port that it listens on.
async fn backend(name: &'static str) -> Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let answer =
                service_fn(move |_| async move { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(name))) });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), answer));
        }
    });
    Ok(port)
}

fn write_certificates(authority: &TestCa, files: &Path) -> Result<()> {
    std::fs::create_dir(files)?;
    std::fs::write(files.join("root.pem"), authority.root())?;
    let client = authority.workload_certificate("spiffe://example.com/client")?;
    for (name, leaf) in [("site", authority.host_certificate(HOST)?), ("client", client)] {
        std::fs::write(files.join(format!("{name}.pem")), leaf.certificate)?;
        std::fs::write(files.join(format!("{name}.key")), leaf.key)?;
    }
    Ok(())
}

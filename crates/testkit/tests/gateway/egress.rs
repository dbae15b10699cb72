//! Out of the mesh through a gateway: plain HTTP to a sidecar, the mesh's certificates to the gateway, TLS of its own to the host outside.

use std::convert::Infallible;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use testkit::test_ca::{LeafCertificate, TestCa};
use testkit::{environment, port, say, skip};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs};

use super::live::{Live, Proxy};
use super::{curl, expect};

const HOST: &str = "ext.example.com";

#[test]
fn traffic_leaves_through_an_egress_gateway() {
    if environment::envoy().is_none() {
        return skip("traffic through an egress gateway: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    if Command::new("curl").arg("--version").output().is_err() {
        return skip("traffic through an egress gateway: no curl");
    }
    run().unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run() -> Result<()> {
    let authority = TestCa::new()?;
    let outside = outside(&authority.host_certificate(HOST)?).await?;
    tokio::task::spawn_blocking(move || check(&authority, outside)).await?
}

fn check(authority: &TestCa, outside: u16) -> Result<()> {
    let (client, gateway) = (port::reserve()?, port::reserve()?);
    let ports = [("CLIENT_PORT", client), ("GATEWAY_PORT", gateway), ("EXT_PORT", outside)];
    let mesh = ports
        .iter()
        .fold(include_str!("egress.yaml").to_owned(), |text, (word, port)| text.replace(word, &port.to_string()));
    let mut live = Live::start(&[("mesh.yaml", &mesh), ("ext.yaml", &authorities(&TestCa::new()?.root()))])?;
    live.proxy(&Proxy { name: "egress-1.edge", kind: "router", account: "egress", app: "egress" })?;
    live.proxy(&Proxy { name: "cart-1.shop", kind: "sidecar", account: "cart", app: "cart" })?;
    let url = format!("http://{HOST}:{client}/");
    let get = |more: &[&str]| curl(&url, more);

    // Where other authorities are trusted there is no way out, least of all a plain one.
    live.wait("the gateway", || get(&[]).is_ok_and(|answer| answer.starts_with("503")))?;
    live.write("ext.yaml", &authorities(&authority.root()))?;
    live.wait("the host outside", || get(&[]).is_ok_and(|answer| answer.starts_with("200")))?;
    expect(&get(&[])?, "200 outside")?;
    expect(&get(&["-w", " by %header{x-through}"])?, "outside by egress")?;

    // The gateway itself takes nobody who does not belong to the mesh.
    let stranger = curl(&format!("https://{HOST}:{gateway}/"), &["--insecure"]);
    ensure!(stranger.is_err(), "a stranger got {stranger:?}");
    say("gateway: out of the mesh through an egress gateway, with TLS made there");
    Ok(())
}

/// A Secret with authorities only.
fn authorities(roots: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: ext-cacert, namespace: edge}}\ndata:\n  cacert: {}\n",
        STANDARD.encode(roots)
    )
}

/// A server outside the mesh, with TLS; the port that it listens on.
async fn outside(leaf: &LeafCertificate) -> Result<u16> {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(io) = acceptor.accept(io).await else { return };
                let answer =
                    service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("outside"))) });
                // The other end may go away at any time.
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), answer).await;
            });
        }
    });
    Ok(port)
}

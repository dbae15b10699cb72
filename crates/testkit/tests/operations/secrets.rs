//! Row A-19: neither the log nor any page nor the metrics tell a key or a token.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use testkit::http_client::{self, HttpRequest};
use testkit::test_ca::TestCa;

use crate::served::{ServedMesh, Setup, plan, stdout};

#[test]
fn discloses_no_secret() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run()).unwrap_or_else(|e| panic!("{e:#}"));
}

async fn run() -> Result<()> {
    let leaf = TestCa::new()?.host_certificate("shop.example.com")?;
    let (certificate, key) = (STANDARD.encode(&leaf.certificate), STANDARD.encode(&leaf.key));
    let objects = format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: shop-tls, namespace: istio-system}}
type: kubernetes.io/tls
data: {{tls.crt: {certificate}, tls.key: {key}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{name: shop, namespace: istio-system}}
spec:
  servers:
  - {{hosts: [shop.example.com], port: {{number: 443, name: https, protocol: HTTPS}}, tls: {{mode: SIMPLE, credentialName: shop-tls}}}}
"
    );
    let mesh = ServedMesh::with(&plan(8, 8), &Setup { more: &[("secret.yaml", objects)], ..Setup::default() })?;
    // Over mutual TLS, so that there are callers to speak of.
    let _swarm = mesh.secure_swarm().await?;
    let token = stdout(
        &std::process::Command::new(testkit::server::program()?)
            .args(["token", "create", "--service-account", "ns-0/default", "--stateDir"])
            .arg(mesh.path("state"))
            .output()?,
    )?;
    let token = token.trim();

    let proxies: Vec<Value> = serde_json::from_str(&mesh.page("/debug/proxies")?)?;
    ensure!(proxies.len() == 8, "who shows a certificate of its account is served: {proxies:?}");
    let proxy = proxies[0]["proxy"].as_str().context("a proxy")?;
    let list: Vec<String> = serde_json::from_str(&mesh.page("/debug/list")?)?;
    let mut texts = vec![("the metrics".to_owned(), mesh.page("/metrics")?)];
    for page in list.iter().chain([&"/debug".to_owned()]) {
        let ask = HttpRequest::new(mesh.monitoring, "localhost", &format!("{page}?proxyID={proxy}&include_eds&pretty"));
        texts.push((
            page.clone(),
            http_client::send_one(&ask.with("authorization", format!("Bearer {token}"))).await?.body,
        ));
    }
    let bad = HttpRequest::new(mesh.monitoring, "localhost", "/debug/syncz")
        .with("authorization", format!("Bearer {token}x"));
    http_client::send_one(&bad).await?;
    texts.push(("the log".to_owned(), mesh.log()));
    let body: String = leaf.key.lines().filter(|line| !line.starts_with('-')).take(1).collect();
    for (what, text) in &texts {
        for secret in ["PRIVATE KEY", token, key.as_str(), body.as_str()] {
            ensure!(!text.contains(secret), "{what} contains a secret");
        }
    }
    ensure!(texts.len() > 30, "only {} looked at", texts.len());
    Ok(())
}

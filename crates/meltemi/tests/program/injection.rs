//! Injection by the program: over HTTP from a folder, and into a file.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::run::{as_text, folder, path, run};
use crate::serve::{Server, put};

const CONFIG: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: istio-sidecar-injector, namespace: istio-system}
data:
  values: '{"global": {"hub": "h", "tag": "t"}}'
  config: |
    policy: enabled
    templates:
      sidecar: |
        metadata: {labels: {kind: "{{ .TypeMeta.Kind | lower }}"}}
        spec: {containers: [{name: istio-proxy, image: "{{ .ProxyImage }}"}]}
"#;

const DEPLOYMENT: &str = "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: cart}, spec: {template: {spec: {containers: [{name: app, image: a}]}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: cart}, spec: {ports: [{port: 80}]}}
";

fn injected(server: &Server) -> (String, Value) {
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "app" }] } });
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": { "uid": "u", "namespace": "shop", "object": pod } });
    let body = review.to_string();
    let mut stream = TcpStream::connect(server.port("--httpAddr")).expect("an open port");
    let head = format!(
        "POST /inject HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a header");
    (head.split_whitespace().nth(1).expect("a status").to_owned(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn injection_is_served_on_the_http_port_to_loopback() {
    let dir = folder(&[("config.yaml", CONFIG)]);
    let server = Server::start_with(&dir, &["--httpsAddr="], &[]);
    let (status, answer) = injected(&server);
    assert_eq!((status.as_str(), &answer["response"]["patchType"]), ("200", &json!("JSONPatch")), "{answer}");
    put(
        &dir,
        "config.yaml",
        &CONFIG.replace("policy: enabled", "policy: enabled\n    templates: {a: '{{ nonesuch }}'}\n    x:"),
    );
    server.wait_for("meltemi_injection_config_invalid", "1");
    assert_eq!(injected(&server).0, "200", "the last valid configuration is in use");
    let page = server.page("--monitoringAddr", "/debug/inject").1;
    assert!(page.contains("istio-proxy") && page.contains("problem"), "{page}");
    assert_eq!(server.metric("sidecar_injection_requests_total").as_deref(), Some("2"));
}

#[test]
fn with_a_port_of_its_own_or_switched_off_it_is_not_on_the_http_port() {
    let dir = folder(&[("config.yaml", CONFIG)]);
    assert_eq!(injected(&Server::start_with(&dir, &[], &[])).0, "404");
    assert_eq!(injected(&Server::start_with(&dir, &["--httpsAddr="], &[("INJECT_ENABLED", "false")])).0, "404");
}

#[test]
fn workloads_of_a_file_are_injected_and_other_objects_pass_through() {
    let (dir, files) = (folder(&[("config.yaml", CONFIG)]), folder(&[("cart.yaml", DEPLOYMENT)]));
    let ran = run(&["inject", path(&dir), "-f", as_text(&files.path().join("cart.yaml"))]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("h/proxyv2:t") && ran.stdout.contains("kind: deployment"), "{}", ran.stdout);
    assert!(ran.stdout.contains("kind: Service") && ran.stderr.contains("1 pods injected"), "{ran:?}");
    let without = run(&["inject", path(&files), "-f", as_text(&files.path().join("cart.yaml"))]);
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.stderr.contains("no ConfigMap istio-system/istio-sidecar-injector"), "{without:?}");
}

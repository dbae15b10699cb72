//! Which Gateways select a proxy, on which ports it listens for them, and which servers may share a port.

use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};

use crate::{Environment, MergedGateway, Mesh, NodeInfo, Proxy};

/// A gateway proxy of the Service `in`, whose ports 80 and 443 have target ports 8080 and 8443.
const PROXY: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: in, namespace: edge, labels: {app: in}}, spec: {containers: []}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Service, metadata: {name: in, namespace: edge}, spec: {clusterIP: 10.96.0.1, selector: {app: in}, ports: [{name: http, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}]}}
";

fn gateway(name: &str, namespace: &str, servers: &[&str]) -> String {
    let servers = servers.join(", ");
    format!(
        "---\n{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{selector: {{app: in}}, servers: [{servers}]}}}}\n"
    )
}

fn server(port: u16, protocol: &str, hosts: &str, more: &str) -> String {
    format!("{{port: {{number: {port}, name: '{protocol}-{port}', protocol: {protocol}}}, hosts: [{hosts}]{more}}}")
}

fn merged_in(env: Environment, objects: &[String]) -> Arc<MergedGateway> {
    let parsed = parse_documents("test", &format!("{PROXY}{}", objects.concat()));
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&snapshot, &Arc::new(env));
    let info = NodeInfo { id: "router~10.0.0.1~in.edge~edge.svc.cluster.local".into(), ..NodeInfo::default() };
    let placement = mesh.place(&Arc::new(Proxy::new(&info).expect("well-formed")));
    placement.gateway_facts.as_ref().expect("a router").gateway.clone()
}

fn merged(servers: &[String]) -> Arc<MergedGateway> {
    let servers: Vec<_> = servers.iter().map(String::as_str).collect();
    merged_in(Environment::default(), &[gateway("web", "edge", &servers)])
}

fn ports(merged: &MergedGateway) -> Vec<(u16, usize)> {
    merged.ports.iter().map(|port| (port.number, port.servers.len())).collect()
}

fn diagnostics(merged: &MergedGateway) -> Vec<String> {
    merged.diagnostics.iter().map(ToString::to_string).collect()
}

const PASS: &str = ", tls: {mode: PASSTHROUGH}";
const SIMPLE: &str = ", tls: {mode: SIMPLE, credentialName: c}";

#[test]
fn listens_on_the_target_port_of_the_service() {
    let found = merged(&[server(80, "HTTP", "a", ""), server(9999, "TCP", "a", ""), server(443, "HTTPS", "a", SIMPLE)]);
    assert_eq!(ports(&found), [(8080, 1), (9999, 1), (8443, 1)]);
    assert_eq!(found.routes.keys().collect::<Vec<_>>(), ["http.8080", "https.443.HTTPS-443.web.edge"]);
}

#[test]
fn the_first_protocol_of_a_port_stays() {
    let found = merged(&[server(80, "HTTP", "a", ""), server(80, "TCP", "a", ""), server(80, "GRPC", "b", "")]);
    assert_eq!(ports(&found), [(8080, 2)]);
    let want = "warning: Gateway edge/web: spec.servers[1]: port 8080 is already served as another protocol by Gateway edge/web; the server is left out";
    assert_eq!(diagnostics(&found), [want]);
}

#[test]
fn sni_distinguishes_tls_servers() {
    let found = merged(&[
        server(443, "HTTPS", "a.com, b.com", SIMPLE),
        server(443, "TLS", "c.com", PASS),
        server(443, "TLS", "d.com, b.com", PASS),
    ]);
    assert_eq!(ports(&found), [(8443, 1), (8443, 1)]);
    let want = "warning: Gateway edge/web: spec.servers[2]: host b.com is already served on port 8443 by Gateway edge/web; the server is left out";
    assert_eq!(diagnostics(&found), [want]);
}

#[test]
fn another_address_is_another_listener() {
    let bound = ", bind: 10.0.0.1";
    let found = merged(&[
        server(80, "HTTP", "a", ""),
        server(80, "TCP", "a", bound),
        server(80, "HTTP", "b", ", bind: 10.0.0.2"),
        server(80, "HTTP", "c", ", bind: 10.0.0.2"),
    ]);
    assert_eq!(ports(&found), [(8080, 1), (8080, 1), (8080, 2)]);
    assert_eq!(found.routes.keys().collect::<Vec<_>>(), ["http.8080", "http.8080.10.0.0.2"]);
    assert_eq!(diagnostics(&found), [""; 0]);
}

#[test]
fn rejects_a_second_https_server_with_the_same_port_name() {
    let found = merged(&[server(443, "HTTPS", "a", SIMPLE), server(443, "HTTPS", "b", SIMPLE)]);
    assert_eq!(ports(&found), [(8443, 1)]);
    assert_eq!(found.diagnostics.len(), 1);
}

#[test]
fn gateways_of_other_namespaces_select_proxies_unless_scoped_to_their_own() {
    let plain = server(80, "HTTP", "a", "");
    let all = [gateway("a", "edge", &[&plain]), gateway("b", "shop", &[&plain])];
    assert_eq!(ports(&merged_in(Environment::default(), &all)), [(8080, 2)]);
    let env = Environment { scope_gateways_to_namespace: true, ..Environment::default() };
    assert_eq!(ports(&merged_in(env, &all)), [(8080, 1)]);
}

#[test]
fn a_server_without_a_port_is_left_out_with_a_diagnostic() {
    let found = merged(&["{hosts: [a]}".into(), server(80, "HTTP", "a", "")]);
    assert_eq!(ports(&found), [(8080, 1)]);
    assert_eq!(
        diagnostics(&found),
        ["warning: Gateway edge/web: spec.servers[0].port: no usable port; the server is left out"]
    );
}

//! Which Gateways choose a router, where it listens for them, and which servers stand side by side.

use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};

use crate::{Environment, MergedGateway, Mesh, NodeInfo, Proxy};

/// A router of the Service `in`, whose ports 80 and 443 lead to 8080 and 8443.
const ROUTER: &str = "
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
    let parsed = parse_documents("test", &format!("{ROUTER}{}", objects.concat()));
    assert!(parsed.refused.is_empty(), "{:?}", parsed.notes);
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&snapshot, &Arc::new(env));
    let info = NodeInfo { id: "router~10.0.0.1~in.edge~edge.svc.cluster.local".into(), ..NodeInfo::default() };
    let placement = mesh.place(&Arc::new(Proxy::new(&info).expect("well-formed")));
    placement.router.as_ref().expect("a router").gateway.clone()
}

fn merged(servers: &[String]) -> Arc<MergedGateway> {
    let servers: Vec<_> = servers.iter().map(String::as_str).collect();
    merged_in(Environment::default(), &[gateway("web", "edge", &servers)])
}

fn ports(merged: &MergedGateway) -> Vec<(u16, usize)> {
    merged.ports.iter().map(|port| (port.number, port.servers.len())).collect()
}

fn notes(merged: &MergedGateway) -> Vec<String> {
    merged.notes.iter().map(ToString::to_string).collect()
}

const PASS: &str = ", tls: {mode: PASSTHROUGH}";
const SIMPLE: &str = ", tls: {mode: SIMPLE, credentialName: c}";

#[test]
fn a_port_of_the_routers_service_is_where_the_router_listens_for_it() {
    let found = merged(&[server(80, "HTTP", "a", ""), server(9999, "TCP", "a", ""), server(443, "HTTPS", "a", SIMPLE)]);
    assert_eq!(ports(&found), [(8080, 1), (9999, 1), (8443, 1)]);
    assert_eq!(found.routes.keys().collect::<Vec<_>>(), ["http.8080", "https.443.HTTPS-443.web.edge"]);
}

#[test]
fn the_first_protocol_of_a_port_stays() {
    let found = merged(&[server(80, "HTTP", "a", ""), server(80, "TCP", "a", ""), server(80, "GRPC", "b", "")]);
    assert_eq!(ports(&found), [(8080, 2)]);
    let want = "warning: Gateway edge/web: spec.servers[1]: port 8080 is already served as another protocol; the server is left out";
    assert_eq!(notes(&found), [want]);
}

#[test]
fn names_tell_tls_servers_apart() {
    let found = merged(&[
        server(443, "HTTPS", "a.com, b.com", SIMPLE),
        server(443, "TLS", "c.com", PASS),
        server(443, "TLS", "d.com, b.com", PASS),
    ]);
    assert_eq!(ports(&found), [(8443, 1), (8443, 1)]);
    let want =
        "warning: Gateway edge/web: spec.servers[2]: host b.com is already served on port 8443; the server is left out";
    assert_eq!(notes(&found), [want]);
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
    assert_eq!(notes(&found), [""; 0]);
}

#[test]
fn one_port_name_for_two_https_servers_of_a_gateway_is_one_too_many() {
    let found = merged(&[server(443, "HTTPS", "a", SIMPLE), server(443, "HTTPS", "b", SIMPLE)]);
    assert_eq!(ports(&found), [(8443, 1)]);
    assert_eq!(found.notes.len(), 1);
}

#[test]
fn gateways_of_other_namespaces_count_unless_they_are_kept_to_their_own() {
    let plain = server(80, "HTTP", "a", "");
    let all = [gateway("a", "edge", &[&plain]), gateway("b", "shop", &[&plain])];
    assert_eq!(ports(&merged_in(Environment::default(), &all)), [(8080, 2)]);
    let env = Environment { scope_gateways_to_namespace: true, ..Environment::default() };
    assert_eq!(ports(&merged_in(env, &all)), [(8080, 1)]);
}

#[test]
fn a_server_without_a_port_is_left_out_with_its_place() {
    let found = merged(&["{hosts: [a]}".into(), server(80, "HTTP", "a", "")]);
    assert_eq!(ports(&found), [(8080, 1)]);
    assert_eq!(
        notes(&found),
        ["warning: Gateway edge/web: spec.servers[0].port: no usable port; the server is left out"]
    );
}

//! VirtualServices and the Gateways that are to serve them.

use super::{check, diagnostics};

const EDGE: &str = "
apiVersion: v1
kind: Service
metadata: {name: edge, namespace: infra}
spec: {clusterIP: 10.0.0.9, selector: {istio: edge}, ports: [{name: http, port: 80, targetPort: 8080}, {name: status, port: 15021, targetPort: status}]}
---
apiVersion: v1
kind: Pod
metadata: {name: edge-1, namespace: infra, labels: {istio: edge}}
spec: {containers: [{ports: [{name: status, containerPort: 15020}]}]}
status: {podIP: 10.1.0.9}
---
apiVersion: v1
kind: Service
metadata: {name: two, namespace: shop}
spec: {clusterIP: 10.0.0.8, ports: [{name: http-a, port: 8090}, {name: http-b, port: 8091}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  selector: {istio: edge}
  servers:
  - {hosts: ['*.shop.example.com', 'bank/bank.example.com', './infra.example.com'], port: {number: 80, name: http, protocol: HTTP}}
";

fn found(spec: &str) -> Vec<String> {
    let object = format!(
        "{EDGE}---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: x, namespace: shop}}\nspec: {spec}\n"
    );
    diagnostics(&object)
}

#[test]
fn hosts_that_the_servers_of_a_gateway_exclude() {
    let to = "http: [{route: [{destination: {host: cart}}]}]";
    let none: [&str; 0] = [];
    assert_eq!(found(&format!("{{hosts: [a.shop.example.com], gateways: [infra/web], {to}}}")), none);
    assert_eq!(found(&format!("{{hosts: ['*.example.com'], gateways: [infra/web], {to}}}")), none);
    assert_eq!(
        found(&format!("{{hosts: [a.shop.example.com, b.example.com], gateways: [infra/web], {to}}}")),
        [
            "VirtualService shop/x: spec.hosts[1]: none of its Gateways has a server for b.example.com, so that it is not routed; add it to hosts there"
        ]
    );
    for host in ["bank.example.com", "infra.example.com"] {
        assert_eq!(
            found(&format!("{{hosts: [{host}], gateways: [infra/web], {to}}}")),
            [
                "VirtualService shop/x: spec.gateways[0]: no server of Gateway infra/web has one of these hosts for namespace shop (it has *.shop.example.com, ./infra.example.com, bank/bank.example.com), so that it routes nothing of this"
            ],
            "{host}"
        );
    }
}

#[test]
fn hosts_of_sidecars_need_no_gateway() {
    let spec = "{hosts: [cart, a.shop.example.com], gateways: [mesh, infra/web], http: [{route: [{destination: {host: cart}}]}]}";
    assert_eq!(found(spec), [""; 0]);
}

#[test]
fn a_gateway_of_another_namespace_is_suggested() {
    assert_eq!(
        found("{hosts: [a.shop.example.com], gateways: [web], http: [{route: [{destination: {host: cart}}]}]}"),
        [
            "VirtualService shop/x: spec.gateways[0]: there is no Gateway shop/web, so that no requests are routed through it; did you mean infra/web?"
        ]
    );
}

#[test]
fn a_destination_without_a_port_has_that_of_the_listener() {
    assert_eq!(
        found("{hosts: [a.shop.example.com], gateways: [infra/web], http: [{route: [{destination: {host: two}}]}]}"),
        [
            "VirtualService shop/x: spec.http[0].route[0].destination: two.shop.svc.cluster.local has the ports 8090, 8091 and none is chosen; the gateway listens on 80, which is not one of them, so that requests fail with 503; add port"
        ]
    );
    let chosen = "{hosts: [a.shop.example.com], gateways: [infra/web], http: [{route: [{destination: {host: two, port: {number: 8091}}}]}]}";
    assert_eq!(found(chosen), [""; 0]);
}

#[test]
fn ports_that_no_service_of_the_gateway_leads_to() {
    let gateway = |port: u16| {
        let object = format!(
            "{EDGE}---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: x, namespace: shop}}\nspec: {{selector: {{istio: edge}}, servers: [{{hosts: [a.b], port: {{number: {port}, name: x, protocol: HTTP}}}}]}}\n"
        );
        diagnostics(&object)
    };
    for port in [80, 8080, 15020, 15021] {
        assert_eq!(gateway(port), [""; 0], "{port}");
    }
    assert_eq!(
        gateway(9000),
        [
            "Gateway shop/x: spec.servers[0].port.number: no Service of the pods that this selects leads to port 9000, so that it is reached only from inside; add the port there"
        ]
    );
}

#[test]
fn claims_are_known_where_tokens_are_verified() {
    let spec = "{hosts: [cart], gateways: [public], http: [{match: [{headers: {'@request.auth.claims.a': {exact: b}}}], route: [{destination: {host: cart}}]}]}";
    let policy = |namespace: &str, selector: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: keys, namespace: {namespace}}}\nspec: {{{selector}}}\n---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: x, namespace: shop}}\nspec: {spec}\n"
        )
    };
    assert_eq!(diagnostics(&policy("istio-system", "")), [""; 0]);
    assert_eq!(diagnostics(&policy("shop", "selector: {matchLabels: {app: cart}}")), [""; 0]);
    assert_eq!(diagnostics(&policy("bank", "")).len(), 1);
    check(
        "VirtualService",
        spec,
        &[
            "spec.http[0].match[0].headers[\"@request.auth.claims.a\"]: no RequestAuthentication applies to the pods of Gateway shop/public (shop/cart-1), so that no claim is known there and this never matches",
        ],
    );
}

fn gateway(name: &str, selector: &str, server: &str) -> String {
    format!(
        "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: infra}}\nspec: {{selector: {{{selector}}}, servers: [{server}]}}\n"
    )
}

#[test]
fn gateways_of_the_same_pods_that_conflict() {
    let tls = |name: &str, hosts: &str| {
        format!(
            "{{hosts: [{hosts}], port: {{number: 443, name: {name}, protocol: HTTPS}}, tls: {{mode: PASSTHROUGH}}}}"
        )
    };
    let pair = |second: &str, selector: &str| {
        let (first, second) =
            (gateway("web-a", "istio: edge", &tls("a", "x.example.com")), gateway("web-b", selector, second));
        let mut found = diagnostics(&format!("{EDGE}{first}{second}"));
        found.retain(|line| {
            !line.contains("no Service of the pods")
                && !line.contains("chooses no workload")
                && !line.contains("no workload of")
        });
        found
    };
    let none: [&str; 0] = [];
    let taken = "Gateway infra/web-b: spec.servers[0]: host x.example.com is already served on port 443 by Gateway infra/web-a; the server is left out";
    assert_eq!(pair(&tls("b", "x.example.com"), "istio: edge"), [taken]);
    assert_eq!(pair(&tls("b", "y.example.com"), "istio: edge"), none);
    assert_eq!(pair(&tls("b", "x.example.com"), "app: cart"), none);
    let tcp = "{hosts: ['*'], port: {number: 80, name: tcp, protocol: TCP}}";
    assert_eq!(
        pair(tcp, "istio: edge"),
        [
            "Gateway infra/web-b: spec.servers[0]: port 8080 is already served as another protocol by Gateway infra/web; the server is left out"
        ]
    );
}

#[test]
fn gateways_of_a_selector_without_pods_conflict_too() {
    let server = "{hosts: ['*'], port: {number: 443, name: tls, protocol: TLS}, tls: {mode: PASSTHROUGH}}";
    let mut found =
        diagnostics(&format!("{EDGE}{}{}", gateway("a", "istio: away", server), gateway("b", "istio: away", server)));
    found.retain(|line| line.contains("already"));
    let taken = "Gateway infra/b: spec.servers[0]: host * is already served on port 443 by Gateway infra/a; the server is left out";
    assert_eq!(found, [taken]);
}

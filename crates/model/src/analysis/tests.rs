//! Inconsistent objects with their expected diagnostics, and a consistent mesh without any.

mod gateways;
mod kubernetes;

use std::sync::Arc;

use config::object::parse_documents;
use config::store::{Store, StoreOptions, Update};

use crate::{Environment, Mesh};

const BASE: &str = "
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}}
status: {podIP: 10.1.0.1}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec: {selector: {app: cart}, servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}
";

fn diagnostics(objects: &str) -> Vec<String> {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let parsed = parse_documents("f", &format!("{BASE}---\n{objects}"));
    assert_eq!(parsed.rejected, [], "{objects}");
    let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
    let mesh = Mesh::new(&snapshot, &Arc::new(Environment::default()));
    let line = |diagnostic: &config::diagnostic::Diagnostic| {
        format!("{}: {}: {}", diagnostic.object.as_ref().unwrap(), diagnostic.field, diagnostic.what)
    };
    let (diagnostics, severities) = (mesh.analysis(), config::diagnostic::Severity::Warning);
    assert!(diagnostics.iter().all(|diagnostic| diagnostic.severity == severities && diagnostic.at.is_some()));
    diagnostics.iter().map(line).collect()
}

fn check(kind: &str, spec: &str, expected: &[&str]) {
    let group = match kind {
        "AuthorizationPolicy" => "security.istio.io/v1",
        "Telemetry" => "telemetry.istio.io/v1",
        _ => "networking.istio.io/v1",
    };
    let object = format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: x, namespace: shop}}\nspec: {spec}\n");
    let expected: Vec<String> = expected.iter().map(|line| format!("{kind} shop/x: {line}")).collect();
    assert_eq!(diagnostics(&object), expected, "{spec}");
}

#[test]
fn a_claim_that_is_matched_without_a_value_blocks_the_routes_of_its_port() {
    let what = "a claim is matched without a value, and proxies reject all routes of the port; match any text with the regex \".*\"";
    check(
        "VirtualService",
        "{hosts: [cart], gateways: [public], http: [{match: [{headers: {'@request.auth.claims.a': {}, x-b: {}}, withoutHeaders: {'@request.auth.claims.c': {exact: d}}}], route: [{destination: {host: cart}}]}]}",
        &[
            &format!("spec.http[0].match[0].headers[\"@request.auth.claims.a\"]: {what}"),
            "spec.http[0].match[0].headers[\"@request.auth.claims.a\"]: no RequestAuthentication applies to the pods of Gateway shop/public (shop/cart-1), so that no claim is known there and this never matches",
        ],
    );
}

#[test]
fn a_claim_that_is_matched_with_a_star_blocks_the_routes_of_its_port() {
    let what = "a claim is matched with the pattern \"*\", and proxies reject all routes of the port; match any text with the regex \".*\"";
    check(
        "VirtualService",
        "{hosts: [cart], gateways: [public], http: [{match: [{withoutHeaders: {'@request.auth.claims.a': {regex: '*'}, x-b: {regex: '*'}}}], route: [{destination: {host: cart}}]}]}",
        &[
            &format!("spec.http[0].match[0].withoutHeaders[\"@request.auth.claims.a\"]: {what}"),
            "spec.http[0].match[0].withoutHeaders[\"@request.auth.claims.a\"]: no RequestAuthentication applies to the pods of Gateway shop/public (shop/cart-1), so that no claim is known there and this never matches",
        ],
    );
}

#[test]
fn a_consistent_mesh_has_no_diagnostics() {
    check(
        "VirtualService",
        "{hosts: [cart], gateways: [mesh, public, shop/public], http: [{match: [{port: 80}], route: [{destination: {host: cart, subset: v1, port: {number: 80}}, weight: 60}, {destination: {host: cart.shop.svc.cluster.local}, weight: 40}]}]}",
        &[],
    );
    check(
        "Sidecar",
        "{workloadSelector: {labels: {app: cart}}, egress: [{hosts: [./*, ./cart.shop.svc.cluster.local, '~/*']}]}",
        &[],
    );
    check("AuthorizationPolicy", "{selector: {matchLabels: {app: cart}}, rules: [{}]}", &[]);
}

#[test]
fn undeclared_destinations() {
    check(
        "VirtualService",
        "{hosts: [cart], http: [{route: [{destination: {host: crat}}], mirror: {host: cart, subset: v2}}, {match: [{uri: {exact: /}}], route: [{destination: {host: cart, port: {number: 81}}}]}], tcp: [{route: [{destination: {host: gone.example.com}}]}]}",
        &[
            "spec.http[0].mirror.subset: no DestinationRule has a subset \"v2\" of cart.shop.svc.cluster.local; requests that are sent there fail with 503",
            "spec.http[0].route[0].destination.host: no Service or ServiceEntry is called crat.shop.svc.cluster.local; requests that are sent there fail with 503; did you mean cart.shop.svc.cluster.local?",
            "spec.http[1].route[0].destination.port: cart.shop.svc.cluster.local has no port 81; requests that are sent there fail with 503; it has 80",
            "spec.tcp[0].route[0].destination.host: no Service or ServiceEntry is called gone.example.com; requests that are sent there fail with 503",
        ],
    );
}

#[test]
fn weights_that_do_not_add_up() {
    check(
        "VirtualService",
        "{hosts: [cart], http: [{route: [{destination: {host: cart}, weight: 60}, {destination: {host: cart}, weight: 30}]}]}",
        &["spec.http[0].route: the weights add up to 90, not to 100; each is taken as a share of 90"],
    );
}

#[test]
fn gateways_and_ports_that_do_not_exist() {
    check(
        "VirtualService",
        "{hosts: [cart], gateways: [mesh, privat, bank/public], http: [{match: [{port: 8080}], route: [{destination: {host: cart}}]}]}",
        &[
            "spec.gateways[1]: there is no Gateway shop/privat, so that no requests are routed through it",
            "spec.gateways[2]: there is no Gateway bank/public, so that no requests are routed through it; did you mean shop/public?",
            "spec.http[0].match[0].port: none of the hosts has port 8080, so that no listener takes such requests",
        ],
    );
}

#[test]
fn missing_and_cyclic_delegates() {
    let object = |name: &str, spec: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n"
        )
    };
    let found = diagnostics(&[
        object("a", "{hosts: [cart], http: [{match: [{uri: {prefix: /b}}], delegate: {name: b}}, {delegate: {name: none}}]}"),
        object("b", "{http: [{delegate: {name: b}, route: [{destination: {host: cart}}]}]}"),
        object("c", "{http: [{route: [{destination: {host: cart}}]}]}"),
    ].concat());
    assert_eq!(
        found,
        [
            "VirtualService shop/a: spec.http[0].delegate: shop/b delegates in turn, which is not followed, in circles or not; those of its routes are left out",
            "VirtualService shop/a: spec.http[1].delegate: there is no VirtualService shop/none; the route is left out",
            "VirtualService shop/b: spec.http[0].delegate: shop/b delegates in turn, which is not followed, in circles or not; those of its routes are left out",
            "VirtualService shop/c: spec.hosts: it has no hosts and nobody delegates to it, so that it has no effect; give it hosts, or delegate to it",
        ]
    );
}

#[test]
fn two_virtual_services_for_one_host() {
    let object = |name: &str, export: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{hosts: [cart], exportTo: [{export}], http: [{{route: [{{destination: {{host: cart}}}}]}}]}}\n---\n"
        )
    };
    assert_eq!(
        diagnostics(&[object("a", "'*'"), object("b", ".")].concat()),
        [
            "VirtualService shop/b: spec.hosts[0]: VirtualService shop/a has cart.shop.svc.cluster.local too and goes first; put the routes of sidecars into one of them"
        ]
    );
    assert_eq!(diagnostics(&[object("a", "bank"), object("b", ".")].concat()), [""; 0]);
}

#[test]
fn destination_rules_for_unknown_hosts() {
    check(
        "DestinationRule",
        "{host: crat}",
        &[
            "spec.host: no Service or ServiceEntry is called crat.shop.svc.cluster.local, so that the rule has no effect; did you mean cart.shop.svc.cluster.local?",
        ],
    );
    check(
        "DestinationRule",
        "{host: cart, trafficPolicy: {portLevelSettings: [{port: {number: 81}, tls: {mode: SIMPLE}}]}}",
        &[
            "spec.trafficPolicy.portLevelSettings[0].port: cart.shop.svc.cluster.local has no port 81, so that this has no effect",
        ],
    );
}

#[test]
fn entries_that_overlap() {
    check(
        "ServiceEntry",
        "{hosts: [cart.shop.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        &[
            "spec.hosts[0]: Service shop/cart declares cart.shop.svc.cluster.local too; keep one of them, or each proxy sees the one that stands first for it",
        ],
    );
}

#[test]
fn selectors_without_a_match() {
    check(
        "Sidecar",
        "{workloadSelector: {labels: {app: web}}, egress: [{hosts: [./*]}]}",
        &["spec.workloadSelector: no workload of namespace shop has these labels (app=web), so that it has no effect"],
    );
    check(
        "Sidecar",
        "{egress: [{hosts: [bank/*, bank/ledger.bank.svc.cluster.local, './*.example.com']}]}",
        &[
            "spec.egress[0].hosts[1]: no service is called ledger.bank.svc.cluster.local in bank, so that nothing is imported",
            "spec.egress[0].hosts[2]: no service is called *.example.com in shop, so that nothing is imported",
        ],
    );
    check(
        "AuthorizationPolicy",
        "{selector: {matchLabels: {app: web}}, rules: [{}]}",
        &["spec.selector: no workload of namespace shop has these labels (app=web), so that it has no effect"],
    );
    check(
        "Gateway",
        "{selector: {app: web}, servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}",
        &["spec.selector: no workload has these labels (app=web), so that nobody listens"],
    );
}

#[test]
fn two_sidecars_for_the_same_workloads() {
    let object = |name: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{egress: [{{hosts: [./*]}}]}}\n---\n"
        )
    };
    assert_eq!(
        diagnostics(&[object("a"), object("b")].concat()),
        [
            "Sidecar shop/b: spec.workloadSelector: Sidecar a of the same namespace selects the same workloads and is older, so that this one has no effect"
        ]
    );
}

#[test]
fn providers_that_the_mesh_config_lacks() {
    check(
        "AuthorizationPolicy",
        "{action: CUSTOM, provider: {name: opa}, rules: [{}]}",
        &["spec.provider.name: the mesh config has no extension provider \"opa\"; add it to extensionProviders there"],
    );
    check(
        "Telemetry",
        "{tracing: [{providers: [{name: jaeger}]}]}",
        &[
            "spec.tracing[0].providers[0].name: the mesh config has no extension provider \"jaeger\"; add it to extensionProviders there",
        ],
    );
}

#[test]
fn reports_credentials_that_no_gateway_may_read() {
    let gateway = |name: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: x, namespace: edge}}, spec: {{selector: {{app: cart}}, servers: [{{hosts: [a.b], port: {{number: 443, name: https, protocol: HTTPS}}, tls: {{mode: SIMPLE, credentialName: '{name}'}}}}]}}}}"
        )
    };
    let secret =
        "{apiVersion: v1, kind: Secret, metadata: {name: site, namespace: shop}, stringData: {tls.crt: a, tls.key: b}}";
    let found = |name: &str| diagnostics(&[secret, &gateway(name)].join("\n---\n"));
    let diagnostic = |what: &str| vec![format!("Gateway edge/x: spec.servers[0].tls.credentialName: {what}")];
    assert_eq!(found("site"), Vec::<String>::new());
    assert_eq!(found("absent"), diagnostic("there is no Secret shop/absent; write it, or change the name"));
    let foreign =
        diagnostic("gateways of namespace shop may not read Secrets of other namespaces; name one of their own");
    assert_eq!(found("kubernetes://bank/site"), foreign);
    assert_eq!(diagnostics(&gateway("absent")), Vec::<String>::new(), "perhaps Secrets are kept elsewhere");
}

//! Notes on Services, pods and namespaces.

use super::{check, diagnostics};

fn service(name: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n---\n")
}

#[test]
fn a_service_that_selects_nobody() {
    let what = "Service shop/x: spec.selector: no workload of namespace shop has these labels (app=web), so that requests fail with 503";
    assert_eq!(diagnostics(&service("x", "{selector: {app: web}, ports: [{name: http, port: 80}]}")), [what]);
    assert_eq!(diagnostics(&service("x", "{selector: {app: cart}, ports: [{name: http, port: 80}]}")), [""; 0]);
    let elsewhere = "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: bank}, spec: {selector: {app: web}, ports: [{port: 80}]}}";
    assert_eq!(diagnostics(elsewhere), [""; 0], "no pods of that namespace are known");
    let slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: x}}, addressType: IPv4, ports: [{name: http, port: 80}], endpoints: [{addresses: [10.9.0.1]}]}";
    let served = service("x", "{selector: {app: web}, ports: [{name: http, port: 80}]}") + slice;
    assert_eq!(diagnostics(&served), [""; 0], "it has endpoints");
}

#[test]
fn a_subset_without_pods() {
    let objects = |version: &str| {
        service("web", "{selector: {app: cart}, ports: [{name: http, port: 80}]}")
            + &format!(
                "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: x, namespace: shop}}\nspec: {{host: web, subsets: [{{name: some, labels: {{{version}}}}}]}}\n"
            )
    };
    assert_eq!(
        diagnostics(&objects("version: v9")),
        [
            "DestinationRule shop/x: spec.subsets[0].labels: no workload of web has these labels (version=v9), so that requests to subset some fail with 503"
        ]
    );
    for good in ["app: cart", "", "topology.istio.io/subzone: a"] {
        assert_eq!(diagnostics(&objects(good)), [""; 0], "{good}");
    }
}

#[test]
fn names_of_ports_that_are_nearly_a_protocol() {
    let port =
        |name: &str, more: &str| diagnostics(&service("x", &format!("{{ports: [{{name: {name}, port: 80{more}}}]}}")));
    for (name, meant) in [
        ("htpp-web", "http"),
        ("gprc", "grpc"),
        ("http8080", "http"),
        ("httpsweb", "https"),
        ("tpc-db", "tcp"),
        ("mongod", "mongo"),
    ] {
        assert_eq!(
            port(name, ""),
            [format!(
                "Service shop/x: spec.ports[0].name: {name:?} declares no protocol, and it is detected for each connection; did you mean {meant}, or a name that begins with {meant}-?"
            )]
        );
        assert_eq!(port(name, ", appProtocol: http"), [""; 0]);
        assert_eq!(port(name, ", protocol: UDP"), [""; 0]);
    }
    for name in
        ["http", "http-web", "grpc-web", "web", "metrics", "rest", "amqp", "db", "postgres", "ldap", "dns", "smtp"]
    {
        assert_eq!(port(name, ""), [""; 0], "{name}");
    }
}

#[test]
fn the_protocol_of_an_external_name_is_declared() {
    let port = |name: &str| {
        diagnostics(&service(
            "x",
            &format!("{{type: ExternalName, externalName: a.b, ports: [{{name: {name}, port: 80}}]}}"),
        ))
    };
    assert_eq!((port("tcp").len(), port("db").len()), (1, 1));
    assert_eq!(port("tls-db"), [""; 0]);
}

#[test]
fn two_services_with_different_protocols_for_one_port_of_a_pod() {
    let both = |name: &str| {
        service("a", "{selector: {app: cart}, ports: [{name: http, port: 80, targetPort: 8080}]}")
            + &service(
                "b",
                &format!("{{selector: {{app: cart}}, ports: [{{name: {name}, port: 81, targetPort: 8080}}]}}"),
            )
    };
    assert_eq!(
        diagnostics(&both("tcp")),
        [
            "Service shop/b: spec.ports[0]: Service a leads to the same port 8080 of pod cart-1 with another protocol; the pod has one listener for both, so declare the same"
        ]
    );
    assert_eq!(diagnostics(&both("http-b")), [""; 0]);
}

#[test]
fn annotations_that_nobody_reads() {
    let pod = |annotation: &str| {
        diagnostics(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: x, namespace: shop, annotations: {{{annotation}}}}}}}"
        ))
    };
    let field = |name: &str| format!("Pod shop/x: metadata.annotations[\"{name}\"]");
    assert_eq!(
        pod("sidecar.istio.io/interceptionMde: NONE"),
        [format!(
            "{}: no such annotation exists, and nobody reads it; did you mean sidecar.istio.io/interceptionMode?",
            field("sidecar.istio.io/interceptionMde")
        )]
    );
    assert_eq!(
        pod("networking.istio.io/exportTo: '*'"),
        [format!(
            "{}: this annotation is for Services; nobody reads it on a Pod",
            field("networking.istio.io/exportTo")
        )]
    );
    assert_eq!(
        pod("sidecar.istio.io/interceptionMode: none"),
        [format!("{}: \"none\" is not REDIRECT, TPROXY or NONE", field("sidecar.istio.io/interceptionMode"))]
    );
    assert_eq!(
        pod("sidecar.istio.io/inject: 'true'"),
        [format!(
            "{}: this annotation is deprecated; use the label sidecar.istio.io/inject",
            field("sidecar.istio.io/inject")
        )]
    );
    for good in [
        "sidecar.istio.io/status: x",
        "traffic.sidecar.istio.io/excludeInboundPorts: '80, 81'",
        "example.com/any: x",
        "sidecar.istio.io/interceptionMode: TPROXY",
    ] {
        assert_eq!(pod(good), [""; 0], "{good}");
    }
}

#[test]
fn a_namespace_with_two_labels_for_injection() {
    let namespace = |labels: &str| {
        diagnostics(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: x, labels: {{{labels}}}}}}}"))
    };
    assert_eq!(namespace("istio-injection: enabled, istio.io/rev: a").len(), 1);
    assert_eq!(namespace("istio.io/rev: a"), [""; 0]);
}

#[test]
fn source_namespaces_that_do_not_exist() {
    let bank = "{apiVersion: v1, kind: Namespace, metadata: {name: bank}}\n---\n";
    let policy = |name: &str| {
        format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: x, namespace: shop}}, spec: {{rules: [{{from: [{{source: {{namespaces: ['{name}']}}}}]}}]}}}}"
        )
    };
    assert_eq!(
        diagnostics(&(bank.to_owned() + &policy("bnak"))),
        [
            "AuthorizationPolicy shop/x: spec.rules[0].from[0].source.namespaces[0]: there is no Namespace bnak; did you mean bank?"
        ]
    );
    for good in ["bank", "ba*", "*nk", "*"] {
        assert_eq!(diagnostics(&(bank.to_owned() + &policy(good))), [""; 0], "{good}");
    }
    assert_eq!(diagnostics(&policy("bnak")), [""; 0], "a folder without Namespaces does not show which ones exist");
}

#[test]
fn telemetries_that_overlap_or_log_nowhere() {
    let object = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}\n---\n"
        )
    };
    let all = "{metrics: [{providers: [{name: prometheus}]}]}";
    assert_eq!(
        diagnostics(&(object("a", all) + &object("b", all))),
        [
            "Telemetry shop/b: spec.selector: Telemetry a of the same namespace selects the same workloads and is older, so that this one has no effect"
        ]
    );
    let cart = "{selector: {matchLabels: {app: cart}}, metrics: [{providers: [{name: prometheus}]}]}";
    assert_eq!(diagnostics(&(object("a", all) + &object("b", cart))), [""; 0]);
    check(
        "Telemetry",
        "{accessLogging: [{}, {disabled: true}]}",
        &[
            "spec.accessLogging[0]: it names no provider, and the mesh config has none for access logs, so that nothing is logged; add providers",
        ],
    );
}

#[test]
fn sidecars_that_select_one_pod_by_different_labels() {
    let pod =
        "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, labels: {app: web, tier: front}}}\n---\n";
    let object = |name: &str, labels: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: {name}, namespace: shop}}, spec: {{workloadSelector: {{labels: {{{labels}}}}}, egress: [{{hosts: ['./*']}}]}}}}\n---\n"
        )
    };
    assert_eq!(
        diagnostics(&(pod.to_owned() + &object("a", "app: web") + &object("b", "tier: front"))),
        [
            "Sidecar shop/b: spec.workloadSelector: Sidecar a of the same namespace selects the same workloads and is older, so that this one has none on them"
        ]
    );
    assert_eq!(diagnostics(&(pod.to_owned() + &object("a", "app: web") + &object("b", "app: cart"))), [""; 0]);
}

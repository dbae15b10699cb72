//! The YAML of random edits.

use config::kind::Kind;

use super::{Edit, NAMESPACES, RARE};
use crate::extending;

pub(super) fn yaml(edit: &Edit) -> String {
    match *edit {
        Edit::Service { name, ns: n, port, shape } => service(name, n, port, shape),
        Edit::Pod { name, ns: n, app, mtls, account } => pod(name, n, app, mtls, account),
        Edit::Slice { service, ns: n, pods, ready, targets } => endpoint_slice(service, n, pods, ready, targets),
        Edit::Sidecar { ns: n, hosts, ingress } => sidecar(n, hosts, ingress),
        Edit::Routes { ns: n, name, host, shape, to } => virtual_service(n, name, host, shape, to),
        Edit::Timeout { ns: n, name, shape } => timeouts(n, name, shape),
        Edit::Gateway { ns: n, name, shape } => gateway(n, name, shape),
        Edit::Ingress { ns: n, name, to } => ingress(n, name, to),
        Edit::Rule { ns: n, name, host, shape } => destination_rule(n, name, host, shape),
        Edit::Entry { name, ns: n, host, shape } => service_entry(name, n, host, shape),
        Edit::WorkloadEntry { name, ns: n, app, healthy } => workload_entry(name, n, app, healthy),
        Edit::Peer { ns: n, mode } => peer_authentication(n, mode),
        Edit::Telemetry { ns: n, name, app, shape } => telemetry(n, name, app, shape),
        Edit::Authorization { ns: n, name, shape } => authorization_policy(n, name, shape),
        Edit::Tokens { ns: n, name, shape } => request_authentication(n, name, shape),
        Edit::Mesh { mode } => mesh_config(mode),
        Edit::Rare { ns, kind, shape } => rare(ns, RARE[usize::from(kind)], shape),
        Edit::Filter(variant) => extending::filter(variant, ns(variant.ns)),
        Edit::Plugin(variant) => extending::plugin(variant, ns(variant.ns)),
        _ => unreachable!("deletions and joins have no text"),
    }
}

fn ns(ns: u8) -> &'static str {
    NAMESPACES[usize::from(ns)]
}

fn service(name: u8, n: u8, port: u8, shape: u8) -> String {
    let number = [80, 81, 5432][usize::from(port)];
    let (kind, address) = match shape {
        0 | 1 => ("http", format!("clusterIP: 10.96.{n}.{name}")),
        2 => ("tcp", format!("clusterIP: 10.96.{n}.{name}")),
        3 => ("auto", format!("clusterIP: 10.96.{n}.{name}")),
        4 => ("tcp", "clusterIP: None".into()),
        5 => ("grpc", "clusterIP: None".into()),
        _ => ("http", format!("{{type: ExternalName, externalName: s{}.{}.svc.cluster.local}}", (name + 1) % 3, ns(n))),
    };
    if shape == 6 {
        return format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: s{name}, namespace: {}}}, spec: {{type: ExternalName, externalName: s{}.{}.svc.cluster.local}}}}",
            ns(n),
            (name + 1) % 3,
            ns(n)
        );
    }
    let address = match shape {
        7 => format!("clusterIP: 10.96.{n}.{name}, trafficDistribution: PreferSameNode"),
        8.. => format!("clusterIP: 10.96.{n}.{name}, externalIPs: [203.0.113.{name}]"),
        _ => address,
    };
    let export = match shape {
        1 => ", annotations: {networking.istio.io/exportTo: '.'}",
        8 => ", labels: {istio.io/persistent-session: c}",
        9 => ", labels: {topology.istio.io/network: far, networking.istio.io/gatewayPort: '80'}",
        10 => ", labels: {topology.istio.io/network: near}",
        _ => "",
    };
    let selector = if shape < 11 { format!("selector: {{app: a{name}}}, ") } else { String::new() };
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: s{name}, namespace: {}{export}}}, spec: {{{address}, {selector}ports: [{{name: {kind}, port: {number}, targetPort: 8080}}]}}}}",
        ns(n)
    )
}

fn pod(name: u8, n: u8, app: u8, mtls: bool, account: u8) -> String {
    let tls = if mtls { ", security.istio.io/tlsMode: istio" } else { "" };
    let edge = if n == 2 { ", istio: ingressgateway" } else { "" };
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p{name}, namespace: {}, labels: {{app: a{app}, service.istio.io/canonical-name: p{name}{tls}{edge}}}}}, spec: {{serviceAccountName: x{account}, containers: []}}, status: {{phase: Running, podIP: 10.10.{n}.{name}}}}}",
        ns(n)
    )
}

fn endpoint_slice(service: u8, n: u8, pods: u8, ready: bool, targets: bool) -> String {
    let entries: Vec<_> = (0..3)
        .filter(|bit| pods >> bit & 1 == 1)
        .map(|pod| {
            let target = if targets {
                format!(", targetRef: {{kind: Pod, name: p{pod}, namespace: {}}}", ns(n))
            } else {
                String::new()
            };
            format!("{{addresses: [10.10.{n}.{pod}], conditions: {{ready: {ready}, serving: true, terminating: {}}}{target}}}", !ready && pod == 2)
        })
        .collect();
    let ports =
        "[{name: http, port: 8080}, {name: tcp, port: 8080}, {name: auto, port: 8080}, {name: grpc, port: 8080}]";
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s{service}, namespace: {}, labels: {{kubernetes.io/service-name: s{service}}}}}, addressType: IPv4, ports: {ports}, endpoints: [{}]}}",
        ns(n),
        entries.join(", ")
    )
}

fn sidecar(n: u8, hosts: u8, ingress: bool) -> String {
    let hosts = ["./*", "*/*", "shop/*", "~/*"][usize::from(hosts)];
    let ingress = if ingress {
        ", ingress: [{port: {number: 9999, protocol: HTTP, name: in}, defaultEndpoint: '127.0.0.1:8080'}]"
    } else {
        ""
    };
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {{name: only, namespace: {}}}, spec: {{egress: [{{hosts: ['{hosts}']}}]{ingress}}}}}",
        ns(n)
    )
}

fn virtual_service(n: u8, name: u8, host: u8, shape: u8, to: u8) -> String {
    let hosts = match host {
        3 => format!("['*.{}.svc.cluster.local', plain.example]", ns(n)),
        host => format!("[s{host}]"),
    };
    let route = format!("route: [{{destination: {{host: s{to}}}}}]");
    let spec = match shape {
        0 => format!("hosts: {hosts}, http: [{{{route}}}]"),
        1 => {
            format!("hosts: {hosts}, http: [{{match: [{{sourceLabels: {{app: a1}}}}], timeout: 1s, {route}}}]")
        }
        2 => format!("hosts: {hosts}, http: [{{match: [{{sourceNamespace: shop, uri: {{prefix: /a}}}}], {route}}}]"),
        3 => format!("hosts: {hosts}, tcp: [{{match: [{{sourceLabels: {{app: a2}}}}], {route}}}]"),
        4 => format!(
            "hosts: {hosts}, exportTo: ['.'], http: [{{route: [{{destination: {{host: s{to}.bank.svc.cluster.local, port: {{number: 81}}}}, weight: 1}}, {{destination: {{host: s0, subset: v1}}, weight: 3}}]}}]"
        ),
        5 => format!("http: [{{name: leaf, {route}}}]"),
        6 => format!(
            "hosts: {hosts}, http: [{{match: [{{uri: {{prefix: /b}}}}], delegate: {{name: v{to}}}}}, {{{route}}}]"
        ),
        7 => format!("hosts: {hosts}, http: [{{redirect: {{uri: /c}}}}]"),
        8 => format!("hosts: {hosts}, gateways: [shop/g0, bank/g0], http: [{{{route}}}], tcp: [{{{route}}}]"),
        9 => format!(
            "hosts: [a.example, s{to}], gateways: [shop/g{name}, mesh], http: [{{match: [{{sourceLabels: {{app: a0}}}}], {route}}}]"
        ),
        10 => format!(
            "hosts: ['*'], gateways: [shop/g1], tls: [{{match: [{{sniHosts: [b.example]}}], {route}}}], http: [{{match: [{{uri: {{prefix: /d}}}}], delegate: {{name: v{to}}}}}]"
        ),
        _ => format!("hosts: {hosts}, tcp: [{{{route}}}], tls: [{{match: [{{sniHosts: [x.example]}}], {route}}}]"),
    };
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v{name}, namespace: {}}}, spec: {{{spec}}}}}",
        ns(n)
    )
}

fn timeouts(n: u8, name: u8, shape: u8) -> String {
    let to = format!("route: [{{destination: {{host: s{name}}}}}]");
    let http = match shape {
        0 => format!("{{{to}}}"),
        1 => format!("{{timeout: 1s, {to}}}"),
        2 => format!("{{match: [{{sourceLabels: {{app: a1}}}}], timeout: 2s, {to}}}"),
        3 => format!("{{match: [{{sourceNamespace: shop}}], {to}}}, {{timeout: 3s, {to}}}"),
        _ => format!("{{match: [{{uri: {{prefix: /a}}}}], timeout: 4s, {to}}}"),
    };
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v{name}, namespace: {}}}, spec: {{hosts: [s{name}, extra{name}.example], http: [{http}]}}}}",
        ns(n)
    )
}

fn gateway(n: u8, name: u8, shape: u8) -> String {
    let servers = [
        "{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}",
        "{port: {number: 81, name: http, protocol: GRPC}, hosts: ['./a.example'], tls: {httpsRedirect: true}}",
        "{port: {number: 443, name: https, protocol: HTTPS}, hosts: ['*.example'], tls: {mode: MUTUAL, credentialName: c}}",
        "{port: {number: 5432, name: tcp, protocol: TCP}, hosts: ['*']}",
        "{port: {number: 443, name: tls, protocol: TLS}, hosts: ['*'], tls: {mode: PASSTHROUGH}}",
        "{port: {number: 15443, name: tls, protocol: TLS}, hosts: ['*.shop.svc.cluster.local'], tls: {mode: AUTO_PASSTHROUGH}}",
    ];
    let (one, other) = (servers[usize::from(shape)], servers[usize::from((shape + name + 1) % 6)]);
    let selector = ["{}", "{app: a0}", "{app: a1}"][usize::from(name)];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {{name: g{name}, namespace: {}}}, spec: {{selector: {selector}, servers: [{one}, {other}]}}}}",
        ns(n)
    )
}

fn ingress(n: u8, name: u8, to: u8) -> String {
    let port = ["{number: 80}", "{name: http}", "{name: grpc}"][usize::from(name)];
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: i{name}, namespace: {}, annotations: {{kubernetes.io/ingress.class: istio}}}}, spec: {{rules: [{{host: i.example, http: {{paths: [{{path: /i{name}, pathType: Prefix, backend: {{service: {{name: s{to}, port: {port}}}}}}}]}}}}]}}}}",
        ns(n)
    )
}

fn destination_rule(n: u8, name: u8, host: u8, shape: u8) -> String {
    let host = ["s0", "s1.bank.svc.cluster.local", "*.shop.svc.cluster.local", "*"][usize::from(host)];
    let spec = [
        "subsets: [{name: v, labels: {app: a0}}]",
        "trafficPolicy: {connectionPool: {tcp: {maxConnections: 3, idleTimeout: 9s}}}, exportTo: ['.']",
        "trafficPolicy: {outlierDetection: {interval: 3s}}, subsets: [{name: w, trafficPolicy: {tls: {mode: DISABLE}}}]",
        "workloadSelector: {matchLabels: {app: a1}}, trafficPolicy: {loadBalancer: {simple: RANDOM}}",
        "trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}, portLevelSettings: [{port: {number: 80}, tls: {mode: SIMPLE}}]}",
        "trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}, subsets: [{name: v1, labels: {app: a1}}]",
    ][usize::from(shape)];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: r{name}, namespace: {}}}, spec: {{host: '{host}', {spec}}}}}",
        ns(n)
    )
}

fn service_entry(name: u8, n: u8, host: u8, shape: u8) -> String {
    let host = ["e.example.com", "*.example.com", "s0.shop.svc.cluster.local", "f.example.com"][usize::from(host)];
    let spec = [
        "resolution: DNS",
        "resolution: DNS, location: MESH_INTERNAL, workloadSelector: {labels: {app: a0}}",
        "resolution: STATIC, location: MESH_INTERNAL, addresses: [10.99.0.1, 10.98.0.0/16], endpoints: [{address: 10.30.0.1, locality: a/b}, {address: 10.10.0.1}]",
        "resolution: STATIC, location: MESH_INTERNAL, workloadSelector: {labels: {app: a1}}",
        "resolution: NONE, exportTo: ['.']",
        "resolution: DYNAMIC_DNS",
        "resolution: NONE, location: MESH_INTERNAL, workloadSelector: {labels: {app: a2}}",
    ][usize::from(shape)];
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: e{name}, namespace: {}}}, spec: {{hosts: ['{host}'], ports: [{{number: 80, name: http, protocol: HTTP}}, {{number: 5432, name: tcp, protocol: TCP}}, {{number: 443, name: tls, protocol: TLS}}], {spec}}}}}",
        ns(n)
    )
}

fn workload_entry(name: u8, n: u8, app: u8, healthy: bool) -> String {
    let status = if healthy { "True" } else { "False" };
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {{name: m{name}, namespace: {}, annotations: {{proxy.istio.io/health-checks-enabled: 'true'}}}}, spec: {{address: 10.10.{n}.{name}, labels: {{app: a{app}}}, serviceAccount: m}}, status: {{conditions: [{{type: Healthy, status: '{status}'}}]}}}}",
        ns(n)
    )
}

fn peer_authentication(n: u8, mode: u8) -> String {
    let mode = ["STRICT", "DISABLE", "PERMISSIVE"][usize::from(mode)];
    format!(
        "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: default, namespace: {}}}, spec: {{mtls: {{mode: {mode}}}}}}}",
        ns(n)
    )
}

fn telemetry(n: u8, name: u8, app: u8, shape: u8) -> String {
    let selector = if app == 3 { String::new() } else { format!("selector: {{matchLabels: {{app: a{app}}}}}, ") };
    let spec = [
        "accessLogging: [{providers: [{name: envoy}], filter: {expression: x}}]",
        "accessLogging: [{disabled: true}, {match: {mode: CLIENT}, providers: [{name: als}]}]",
        "tracing: [{providers: [{name: zip}], randomSamplingPercentage: 7}]",
        "metrics: [{providers: [{name: prometheus}], overrides: [{match: {mode: CLIENT}, disabled: true}]}]",
        "tracing: [{match: {mode: SERVER}, disableSpanReporting: true}]",
    ][usize::from(shape)];
    format!(
        "{{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {{name: t{name}, namespace: {}}}, spec: {{{selector}{spec}}}}}",
        ns(n)
    )
}

fn authorization_policy(n: u8, name: u8, shape: u8) -> String {
    let spec = [
        "{action: DENY, rules: [{to: [{operation: {paths: [/x]}}]}]}",
        "{selector: {matchLabels: {app: a1}}, rules: [{from: [{source: {namespaces: [shop]}}]}]}",
        "{action: CUSTOM, provider: {name: gate}, rules: [{}]}",
        "{selector: {matchLabels: {app: a0}}, action: CUSTOM, provider: {name: other}, rules: [{}]}",
    ][usize::from(shape)];
    format!(
        "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a{name}, namespace: {}}}, spec: {spec}}}",
        ns(n)
    )
}

fn request_authentication(n: u8, name: u8, shape: u8) -> String {
    let spec = [
        "{jwtRules: [{issuer: i, jwks: '{}'}]}",
        "{selector: {matchLabels: {app: a1}}, jwtRules: [{issuer: h, jwksUri: 'https://keys0'}]}",
        "{jwtRules: [{issuer: j, jwksUri: 'https://keys1'}, {issuer: g}]}",
    ][usize::from(shape)];
    format!(
        "{{apiVersion: security.istio.io/v1, kind: RequestAuthentication, metadata: {{name: t{name}, namespace: {}}}, spec: {spec}}}",
        ns(n)
    )
}

/// Namespace and name.
pub(super) fn rare_name(n: u8, kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Namespace => ("", ns(n)),
        Kind::Node => ("", ["n0", "n1", "n2"][usize::from(n)]),
        Kind::IngressClass => ("", ["istio", "nginx", "rare"][usize::from(n)]),
        Kind::Endpoints => (ns(n), "s0"),
        _ => (ns(n), "rare"),
    }
}

fn rare(n: u8, kind: Kind, shape: u8) -> String {
    let (namespace, name) = rare_name(n, kind);
    let [one, other] = match kind {
        Kind::Namespace => [
            "apiVersion: v1, kind: Namespace, metadata: {NAME}",
            "apiVersion: v1, kind: Namespace, metadata: {NAME, annotations: {networking.istio.io/traffic-distribution: PreferClose}}",
        ],
        Kind::Node => [
            "apiVersion: v1, kind: Node, metadata: {NAME}",
            "apiVersion: v1, kind: Node, metadata: {NAME, labels: {topology.kubernetes.io/region: r}}",
        ],
        Kind::Endpoints => [
            "apiVersion: v1, kind: Endpoints, metadata: {NAME}, subsets: [{addresses: [{ip: 10.20.0.1}], ports: [{name: http, port: 8080}]}]",
            "apiVersion: v1, kind: Endpoints, metadata: {NAME}, subsets: [{addresses: [{ip: 10.10.0.0}, {ip: 10.20.0.2}], ports: [{name: tcp, port: 8080}]}]",
        ],
        Kind::TrafficExtension => [
            "apiVersion: extensions.istio.io/v1alpha1, kind: TrafficExtension, metadata: {NAME}, spec: {lua: {inlineCode: 'x'}}",
            "apiVersion: extensions.istio.io/v1alpha1, kind: TrafficExtension, metadata: {NAME}, spec: {lua: {inlineCode: 'y'}}",
        ],
        Kind::IngressClass => [
            "apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {NAME}, spec: {controller: istio.io/ingress-controller}",
            "apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {NAME}, spec: {controller: other}",
        ],
        Kind::ProxyConfig => [
            "apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {NAME}, spec: {concurrency: 1}",
            "apiVersion: networking.istio.io/v1beta1, kind: ProxyConfig, metadata: {NAME}, spec: {selector: {matchLabels: {app: a1}}, environmentVariables: {A: b}}",
        ],
        Kind::ServiceAccount => [
            "apiVersion: v1, kind: ServiceAccount, metadata: {NAME}",
            "apiVersion: v1, kind: ServiceAccount, metadata: {NAME, labels: {a: b}}",
        ],
        Kind::WorkloadGroup => [
            "apiVersion: networking.istio.io/v1, kind: WorkloadGroup, metadata: {NAME}, spec: {template: {serviceAccount: one}}",
            "apiVersion: networking.istio.io/v1, kind: WorkloadGroup, metadata: {NAME}, spec: {metadata: {labels: {app: a1}}, template: {serviceAccount: two}}",
        ],
        _ => [
            "apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {NAME}, spec: {selector: {matchLabels: {app: a1}}, mtls: {mode: STRICT}}",
            "apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {NAME}, spec: {selector: {matchLabels: {app: a1}}, portLevelMtls: {8080: {mode: DISABLE}}}",
        ],
    };
    let text = if shape == 0 { one } else { other };
    let named =
        if namespace.is_empty() { format!("name: {name}") } else { format!("name: {name}, namespace: {namespace}") };
    format!("{{{}}}", text.replace("NAME", &named))
}

fn mesh_config(mode: u8) -> String {
    let text = [
        "enableAutoMtls: false",
        "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
        "{}",
        "{defaultProviders: {tracing: [zip]}, extensionProviders: [{name: zip, zipkin: {service: s0.shop.svc.cluster.local, port: 80}}, {name: als, envoyHttpAls: {service: s1.bank.svc.cluster.local, port: 81}}]}",
        "extensionProviders: [{name: gate, envoyExtAuthzGrpc: {service: s0.shop.svc.cluster.local, port: 80}}]",
        "{}",
    ][usize::from(mode)];
    let networks = match mode {
        5 => {
            ", meshNetworks: 'networks: {far: {endpoints: [{fromCidr: 10.10.1.0/24}], gateways: [{address: 172.16.0.1, port: 15443}]}}'"
        }
        _ => "",
    };
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: istio, namespace: istio-system}}, data: {{mesh: '{text}'{networks}}}}}"
    )
}

//! Random edits of objects of every kind, as the updates that a source would tell.

use config::jwks::KeySource;
use config::kind::Kind;
use config::note::ObjectId;
use config::object::parse_documents;
use config::store::Update;
use proptest::prelude::*;

use crate::extending;

/// One edit of the objects: small worlds make edits meet.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    Service {
        name: u8,
        ns: u8,
        port: u8,
        shape: u8,
    },
    NoService {
        name: u8,
        ns: u8,
    },
    Pod {
        name: u8,
        ns: u8,
        app: u8,
        mtls: bool,
        account: u8,
    },
    NoPod {
        name: u8,
        ns: u8,
    },
    Slice {
        service: u8,
        ns: u8,
        pods: u8,
        ready: bool,
        targets: bool,
    },
    NoSlice {
        service: u8,
        ns: u8,
    },
    Sidecar {
        ns: u8,
        hosts: u8,
        ingress: bool,
    },
    NoSidecar {
        ns: u8,
    },
    Routes {
        ns: u8,
        name: u8,
        host: u8,
        shape: u8,
        to: u8,
    },
    /// Routes of one service that change in place.
    Timeout {
        ns: u8,
        name: u8,
        shape: u8,
    },
    NoRoutes {
        ns: u8,
        name: u8,
    },
    Gateway {
        ns: u8,
        name: u8,
        shape: u8,
    },
    NoGateway {
        ns: u8,
        name: u8,
    },
    Ingress {
        ns: u8,
        name: u8,
        to: u8,
    },
    NoIngress {
        ns: u8,
        name: u8,
    },
    Rule {
        ns: u8,
        name: u8,
        host: u8,
        shape: u8,
    },
    NoRule {
        ns: u8,
        name: u8,
    },
    Entry {
        name: u8,
        ns: u8,
        host: u8,
        shape: u8,
    },
    NoEntry {
        name: u8,
        ns: u8,
    },
    Machine {
        name: u8,
        ns: u8,
        app: u8,
        healthy: bool,
    },
    NoMachine {
        name: u8,
        ns: u8,
    },
    Peer {
        ns: u8,
        mode: u8,
    },
    Telemetry {
        ns: u8,
        name: u8,
        app: u8,
        shape: u8,
    },
    NoTelemetry {
        ns: u8,
        name: u8,
    },
    Authorization {
        ns: u8,
        name: u8,
        shape: u8,
    },
    NoAuthorization {
        ns: u8,
        name: u8,
    },
    Tokens {
        ns: u8,
        name: u8,
        shape: u8,
    },
    NoTokens {
        ns: u8,
        name: u8,
    },
    Keys {
        source: u8,
        keys: u8,
    },
    Mesh {
        mode: u8,
    },
    Filter(extending::Place),
    NoFilter(extending::Place),
    Plugin(extending::Place),
    NoPlugin(extending::Place),
    Join {
        ns: u8,
        pod: u8,
    },
}

pub(crate) const NAMESPACES: [&str; 3] = ["shop", "bank", "istio-system"];

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    let (n, ns) = (0..3u8, 0..3u8);
    prop_oneof![
        6 => (n.clone(), ns.clone(), 0..3u8, 0..13u8).prop_map(|(name, ns, port, shape)| Edit::Service { name, ns, port, shape }),
        2 => (n.clone(), ns.clone()).prop_map(|(name, ns)| Edit::NoService { name, ns }),
        6 => (n.clone(), ns.clone(), 0..3u8, any::<bool>(), 0..2u8).prop_map(|(name, ns, app, mtls, account)| Edit::Pod { name, ns, app, mtls, account }),
        2 => (n.clone(), ns.clone()).prop_map(|(name, ns)| Edit::NoPod { name, ns }),
        6 => (n.clone(), ns.clone(), 0..8u8, any::<bool>(), any::<bool>()).prop_map(|(service, ns, pods, ready, targets)| Edit::Slice { service, ns, pods, ready, targets }),
        2 => (n.clone(), ns.clone()).prop_map(|(service, ns)| Edit::NoSlice { service, ns }),
        2 => (ns.clone(), 0..4u8, any::<bool>()).prop_map(|(ns, hosts, ingress)| Edit::Sidecar { ns, hosts, ingress }),
        1 => ns.clone().prop_map(|ns| Edit::NoSidecar { ns }),
        4 => (ns.clone(), n.clone(), 0..4u8, 0..12u8, n.clone()).prop_map(|(ns, name, host, shape, to)| Edit::Routes { ns, name, host, shape, to }),
        5 => (ns.clone(), n.clone(), 0..5u8).prop_map(|(ns, name, shape)| Edit::Timeout { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoRoutes { ns, name }),
        3 => (ns.clone(), n.clone(), 0..6u8).prop_map(|(ns, name, shape)| Edit::Gateway { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoGateway { ns, name }),
        2 => (ns.clone(), n.clone(), n.clone()).prop_map(|(ns, name, to)| Edit::Ingress { ns, name, to }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoIngress { ns, name }),
        3 => (ns.clone(), n.clone(), 0..4u8, 0..6u8).prop_map(|(ns, name, host, shape)| Edit::Rule { ns, name, host, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoRule { ns, name }),
        4 => (n.clone(), ns.clone(), 0..4u8, 0..7u8).prop_map(|(name, ns, host, shape)| Edit::Entry { name, ns, host, shape }),
        1 => (n.clone(), ns.clone()).prop_map(|(name, ns)| Edit::NoEntry { name, ns }),
        2 => (n.clone(), ns.clone(), 0..3u8, any::<bool>()).prop_map(|(name, ns, app, healthy)| Edit::Machine { name, ns, app, healthy }),
        1 => (n.clone(), ns.clone()).prop_map(|(name, ns)| Edit::NoMachine { name, ns }),
        1 => (ns.clone(), 0..3u8).prop_map(|(ns, mode)| Edit::Peer { ns, mode }),
        3 => (ns.clone(), n.clone(), 0..4u8, 0..5u8).prop_map(|(ns, name, app, shape)| Edit::Telemetry { ns, name, app, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoTelemetry { ns, name }),
        3 => (ns.clone(), n.clone(), 0..4u8).prop_map(|(ns, name, shape)| Edit::Authorization { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoAuthorization { ns, name }),
        2 => (ns.clone(), n.clone(), 0..3u8).prop_map(|(ns, name, shape)| Edit::Tokens { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoTokens { ns, name }),
        2 => (0..2u8, 0..3u8).prop_map(|(source, keys)| Edit::Keys { source, keys }),
        2 => (0..6u8).prop_map(|mode| Edit::Mesh { mode }),
        6 => extending::place().prop_map(Edit::Filter),
        2 => extending::place().prop_map(Edit::NoFilter),
        3 => extending::place().prop_map(Edit::Plugin),
        1 => extending::place().prop_map(Edit::NoPlugin),
        3 => (ns, n).prop_map(|(ns, pod)| Edit::Join { ns, pod }),
    ]
}

pub(crate) fn updates(edit: &Edit) -> Vec<Update> {
    let gone = |kind, ns: u8, name: String| {
        let (namespace, name) = (NAMESPACES[usize::from(ns)].into(), name.into());
        vec![Update::Delete(ObjectId { kind, namespace, name })]
    };
    match *edit {
        Edit::NoService { name, ns } => gone(Kind::Service, ns, format!("s{name}")),
        Edit::NoPod { name, ns } => gone(Kind::Pod, ns, format!("p{name}")),
        Edit::NoSlice { service, ns } => gone(Kind::EndpointSlice, ns, format!("s{service}")),
        Edit::NoSidecar { ns } => gone(Kind::Sidecar, ns, "only".into()),
        Edit::NoRoutes { ns, name } => gone(Kind::VirtualService, ns, format!("v{name}")),
        Edit::NoIngress { ns, name } => gone(Kind::Ingress, ns, format!("i{name}")),
        Edit::NoGateway { ns, name } => gone(Kind::Gateway, ns, format!("g{name}")),
        Edit::NoRule { ns, name } => gone(Kind::DestinationRule, ns, format!("r{name}")),
        Edit::NoEntry { name, ns } => gone(Kind::ServiceEntry, ns, format!("e{name}")),
        Edit::NoMachine { name, ns } => gone(Kind::WorkloadEntry, ns, format!("m{name}")),
        Edit::NoTelemetry { ns, name } => gone(Kind::Telemetry, ns, format!("t{name}")),
        Edit::NoAuthorization { ns, name } => gone(Kind::AuthorizationPolicy, ns, format!("a{name}")),
        Edit::NoTokens { ns, name } => gone(Kind::RequestAuthentication, ns, format!("t{name}")),
        Edit::NoFilter(extending::Place { ns, name, .. }) => gone(Kind::EnvoyFilter, ns, format!("f{name}")),
        Edit::NoPlugin(extending::Place { ns, name, .. }) => gone(Kind::WasmPlugin, ns, format!("w{name}")),
        Edit::Keys { source, keys } => {
            let source = KeySource::Uri(format!("https://keys{source}").as_str().into());
            let keys = (keys > 0).then(|| format!("{{\"keys\": [{keys}]}}").as_str().into());
            vec![Update::Keys { source, keys }]
        }
        Edit::Join { .. } => Vec::new(),
        _ => {
            let text = yaml(edit);
            let parsed = parse_documents("edit", &text);
            assert!(parsed.refused.is_empty(), "{text}\n{:?}", parsed.notes);
            parsed.objects.into_iter().map(Update::Put).collect()
        }
    }
}

fn yaml(edit: &Edit) -> String {
    let ns = |ns: u8| NAMESPACES[usize::from(ns)];
    match *edit {
        Edit::Service { name, ns: n, port, shape } => {
            let number = [80, 81, 5432][usize::from(port)];
            let (kind, address) = match shape {
                0 | 1 => ("http", format!("clusterIP: 10.96.{n}.{name}")),
                2 => ("tcp", format!("clusterIP: 10.96.{n}.{name}")),
                3 => ("auto", format!("clusterIP: 10.96.{n}.{name}")),
                4 => ("tcp", "clusterIP: None".into()),
                5 => ("grpc", "clusterIP: None".into()),
                _ => (
                    "http",
                    format!("{{type: ExternalName, externalName: s{}.{}.svc.cluster.local}}", (name + 1) % 3, ns(n)),
                ),
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
        Edit::Pod { name, ns: n, app, mtls, account } => {
            let tls = if mtls { ", security.istio.io/tlsMode: istio" } else { "" };
            let edge = if n == 2 { ", istio: ingressgateway" } else { "" };
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: p{name}, namespace: {}, labels: {{app: a{app}{tls}{edge}}}}}, spec: {{serviceAccountName: x{account}, containers: []}}, status: {{phase: Running, podIP: 10.10.{n}.{name}}}}}",
                ns(n)
            )
        }
        Edit::Slice { service, ns: n, pods, ready, targets } => {
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
            let ports = "[{name: http, port: 8080}, {name: tcp, port: 8080}, {name: auto, port: 8080}, {name: grpc, port: 8080}]";
            format!(
                "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s{service}, namespace: {}, labels: {{kubernetes.io/service-name: s{service}}}}}, addressType: IPv4, ports: {ports}, endpoints: [{}]}}",
                ns(n),
                entries.join(", ")
            )
        }
        Edit::Sidecar { ns: n, hosts, ingress } => {
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
        Edit::Routes { ns: n, name, host, shape, to } => {
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
                2 => format!(
                    "hosts: {hosts}, http: [{{match: [{{sourceNamespace: shop, uri: {{prefix: /a}}}}], {route}}}]"
                ),
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
                _ => format!(
                    "hosts: {hosts}, tcp: [{{{route}}}], tls: [{{match: [{{sniHosts: [x.example]}}], {route}}}]"
                ),
            };
            format!(
                "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v{name}, namespace: {}}}, spec: {{{spec}}}}}",
                ns(n)
            )
        }
        Edit::Timeout { ns: n, name, shape } => {
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
        Edit::Gateway { ns: n, name, shape } => {
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
        Edit::Ingress { ns: n, name, to } => {
            let port = ["{number: 80}", "{name: http}", "{name: grpc}"][usize::from(name)];
            format!(
                "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: i{name}, namespace: {}, annotations: {{kubernetes.io/ingress.class: istio}}}}, spec: {{rules: [{{host: i.example, http: {{paths: [{{path: /i{name}, pathType: Prefix, backend: {{service: {{name: s{to}, port: {port}}}}}}}]}}}}]}}}}",
                ns(n)
            )
        }
        Edit::Rule { ns: n, name, host, shape } => {
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
        Edit::Entry { name, ns: n, host, shape } => {
            let host =
                ["e.example.com", "*.example.com", "s0.shop.svc.cluster.local", "f.example.com"][usize::from(host)];
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
        Edit::Machine { name, ns: n, app, healthy } => {
            let status = if healthy { "True" } else { "False" };
            format!(
                "{{apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {{name: m{name}, namespace: {}, annotations: {{proxy.istio.io/health-checks-enabled: 'true'}}}}, spec: {{address: 10.10.{n}.{name}, labels: {{app: a{app}}}, serviceAccount: m}}, status: {{conditions: [{{type: Healthy, status: '{status}'}}]}}}}",
                ns(n)
            )
        }
        Edit::Peer { ns: n, mode } => {
            let mode = ["STRICT", "DISABLE", "PERMISSIVE"][usize::from(mode)];
            format!(
                "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: default, namespace: {}}}, spec: {{mtls: {{mode: {mode}}}}}}}",
                ns(n)
            )
        }
        Edit::Telemetry { ns: n, name, app, shape } => {
            let selector =
                if app == 3 { String::new() } else { format!("selector: {{matchLabels: {{app: a{app}}}}}, ") };
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
        Edit::Authorization { ns: n, name, shape } => {
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
        Edit::Tokens { ns: n, name, shape } => {
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
        Edit::Mesh { mode } => {
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
        Edit::Filter(place) => extending::filter(place, ns(place.ns)),
        Edit::Plugin(place) => extending::plugin(place, ns(place.ns)),
        _ => unreachable!("deletions and joins have no text"),
    }
}

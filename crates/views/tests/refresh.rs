//! Laws T1 to T3: after any sequence of edits, what each proxy was sent adds up to a computation from scratch on the current objects, came
//! in order, and is made from nothing that another namespace keeps to itself.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use config::jwks::KeySource;
use config::kind::Kind;
use config::note::ObjectId;
use config::object::parse_documents;
use config::store::{Name, Snapshot, Store, StoreOptions, Update};
use model::{Environment, Mesh, NodeInfo, Proxy};
use proptest::prelude::*;
use views::Views;
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind as Json};
use xds::{Bell, Class, Joined, Kinds, Provider, Seq, Tally, TypeUrl};

mod extending;

const KINDS: [TypeUrl; 6] =
    [TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension, TypeUrl::NameTable];

/// One edit of the objects: small worlds make edits meet.
#[derive(Debug, Clone)]
enum Edit {
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

const NAMESPACES: [&str; 3] = ["shop", "bank", "istio-system"];

fn edit() -> impl Strategy<Value = Edit> {
    let (n, ns) = (0..3u8, 0..3u8);
    prop_oneof![
        6 => (n.clone(), ns.clone(), 0..3u8, 0..11u8).prop_map(|(name, ns, port, shape)| Edit::Service { name, ns, port, shape }),
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

fn updates(edit: &Edit) -> Vec<Update> {
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
            format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: s{name}, namespace: {}{export}}}, spec: {{{address}, selector: {{app: a{name}}}, ports: [{{name: {kind}, port: {number}, targetPort: 8080}}]}}}}",
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

/// A proxy that keeps what it is sent, as Envoy would.
struct Held {
    info: NodeInfo,
    class: Arc<dyn Class>,
    news: Arc<Bell>,
    at: BTreeMap<TypeUrl, Seq>,
    resources: BTreeMap<TypeUrl, BTreeMap<Arc<str>, Arc<str>>>,
}

impl Held {
    /// As a stream does: whoever is not told that there is news does not look.
    fn catch_up(&mut self) {
        let rung = pin!(self.news.rung()).poll(&mut Context::from_waker(Waker::noop()));
        let due = match rung {
            _ if self.at.is_empty() => Kinds::ALL,
            Poll::Ready(rung) => rung.kinds,
            Poll::Pending => Kinds::NONE,
        };
        for kind in KINDS.into_iter().filter(|kind| due.contains(*kind)) {
            let at = self.at.entry(kind).or_default();
            let changes = self.class.since(kind, *at);
            // Law T3: what a proxy is told never goes back.
            assert!(changes.is_empty() || changes.seq > *at, "{kind:?} goes from {at} to {}", changes.seq);
            let held = self.resources.entry(kind).or_default();
            for gone in &changes.removed {
                held.remove(gone);
            }
            for resource in &changes.changed {
                held.insert(resource.name.clone(), resource.version.clone());
            }
            *at = (*at).max(changes.seq);
        }
    }

    /// Law T2: nothing is made from what another namespace keeps to itself. Asked of a computation from scratch, to which the
    /// refreshed bytes are equal by law T1: a listener whose bytes stay may keep naming the objects that it was first made from.
    fn sees_nothing_private(&self, class: &dyn Class, private: &BTreeSet<String>) {
        let own = self.info.metadata["NAMESPACE"].as_str().expect("set above");
        for kind in KINDS {
            for resource in &class.since(kind, 0).changed {
                for id in resource.made_from.iter().filter(|id| private.contains(&***id)) {
                    assert!(id.contains(&format!(" {own}/")), "{own} gets {kind:?} {} made from {id}", resource.name);
                }
            }
        }
    }

    /// The same from nothing: a mesh and a provider that never saw another state.
    fn scratch(&self, snapshot: &Snapshot) -> Arc<dyn Class> {
        let views = Views::new(Environment::default());
        views.refresh(snapshot, Instant::now());
        views.join(&node(&self.info)).expect("it joined before").class
    }

    fn listed(class: &dyn Class) -> BTreeMap<TypeUrl, BTreeMap<Arc<str>, Arc<str>>> {
        let listed = |kind| {
            let all = class.since(kind, 0);
            assert_eq!(class.tally(kind), Tally::of(&all.changed).at(all.seq), "{kind:?} in short");
            all.changed.iter().map(|r| (r.name.clone(), r.version.clone())).collect()
        };
        KINDS.into_iter().map(|kind| (kind, listed(kind))).collect()
    }
}

/// Objects that only their own namespace may see.
fn private(snapshot: &Snapshot) -> BTreeSet<String> {
    let own = |export_to: &[String]| matches!(export_to, [only] if only == ".");
    let id =
        |kind, name: &Name| ObjectId { kind, namespace: name.namespace.clone(), name: name.name.clone() }.to_string();
    let services = snapshot.services.iter().filter(|(_, object)| {
        object.meta.annotations.get("networking.istio.io/exportTo").is_some_and(|text| text == ".")
    });
    let routes = snapshot.virtual_services.iter().filter(|(_, object)| own(&object.spec.export_to));
    let rules = snapshot.destination_rules.iter().filter(|(_, object)| own(&object.spec.export_to));
    let entries = snapshot.service_entries.iter().filter(|(_, object)| own(&object.spec.export_to));
    let all = services.map(|(name, _)| id(Kind::Service, name));
    let all = all.chain(routes.map(|(name, _)| id(Kind::VirtualService, name)));
    let all = all.chain(rules.map(|(name, _)| id(Kind::DestinationRule, name)));
    all.chain(entries.map(|(name, _)| id(Kind::ServiceEntry, name))).collect()
}

fn info(ns: u8, pod: u8) -> NodeInfo {
    let namespace = NAMESPACES[usize::from(ns)];
    let kind = if ns == 2 && pod != 1 { "router" } else { "sidecar" };
    let network = ["", "near", "far"][usize::from(pod)];
    NodeInfo {
        id: format!("{kind}~10.10.{ns}.{pod}~p{pod}.{namespace}~{namespace}.svc.cluster.local"),
        metadata: serde_json::json!({"NAMESPACE": namespace, "LABELS": {"app": format!("a{pod}")}, "DNS_CAPTURE": (pod == 1).to_string(), "NETWORK": network}),
        ..NodeInfo::default()
    }
}

fn node(info: &NodeInfo) -> Node {
    let text =
        |value: &serde_json::Value| Value { kind: Some(Json::StringValue(value.as_str().unwrap_or_default().into())) };
    let fields = ["NAMESPACE", "DNS_CAPTURE", "NETWORK"].map(|key| (key.to_owned(), text(&info.metadata[key]))).into();
    Node { id: info.id.clone(), metadata: Some(Struct { fields }), ..Node::default() }
}

/// Laws T1 to T3 for one history of edits. Every `lazy`th proxy hears of several changes at once.
fn holds(edits: &[Edit], lazy: usize) {
    let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
    let views = Views::new(Environment::default());
    views.refresh(&store.snapshot(), Instant::now());
    let mut proxies: Vec<Held> = Vec::new();
    for (step, edit) in edits.iter().enumerate() {
        if let Edit::Join { ns, pod } = *edit {
            let info = info(ns, pod);
            let Joined { class, news, .. } = views.join(&node(&info)).expect("a well-formed node");
            proxies.push(Held { info, class, news, at: BTreeMap::new(), resources: BTreeMap::new() });
        }
        let snapshot = store.apply(updates(edit));
        views.refresh(&snapshot, Instant::now());
        // Some proxies are slow: they hear of several changes at once.
        for (index, proxy) in proxies.iter_mut().enumerate() {
            if step % (index % lazy + 1) == 0 {
                proxy.catch_up();
            }
        }
    }
    let snapshot = store.snapshot();
    let private = private(&snapshot);
    for proxy in &mut proxies {
        proxy.catch_up();
        let scratch = proxy.scratch(&snapshot);
        proxy.sees_nothing_private(&*scratch, &private);
        let want = Held::listed(&*scratch);
        for kind in KINDS {
            assert_eq!(&proxy.resources[&kind], &want[&kind], "{} {:?}", proxy.info.id, kind);
        }
    }
}

#[test]
fn an_entry_that_becomes_private_leaves_another_of_its_host() {
    let entry = |ns, name, shape| Edit::Entry { name, ns, host: 0, shape };
    // Two entries with one host and the same content; then the first is kept to its own namespace.
    holds(&[entry(2, 2, 0), Edit::Join { ns: 0, pod: 0 }, entry(0, 0, 0), entry(2, 2, 4)], 1);
}

#[test]
fn a_pod_of_an_entry_behind_a_service_of_its_host_is_listened_for() {
    let entry = Edit::Entry { name: 0, ns: 0, host: 2, shape: 6 };
    for shape in [2, 6] {
        let service = Edit::Service { name: 0, ns: 0, port: 0, shape };
        let pod = Edit::Pod { name: 1, ns: 0, app: 2, mtls: false, account: 0 };
        holds(&[entry.clone(), service, Edit::Join { ns: 1, pod: 0 }, pod], 1);
    }
}

proptest! {
    // PROPTEST_CASES asks for more of them; a failure prints the edits that it shrank to, and its seed goes to proptest-regressions.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn refreshed_views_equal_a_computation_from_scratch(edits in prop::collection::vec(edit(), 1..60), lazy in 1..4usize) {
        holds(&edits, lazy);
    }

    #[test]
    fn the_next_mesh_says_what_a_new_one_would(edits in prop::collection::vec(edit(), 1..40)) {
        let env = Arc::new(Environment::default());
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut mesh = Mesh::new(&store.snapshot(), &env);
        for edit in &edits {
            let snapshot = store.apply(updates(edit));
            mesh = mesh.next(&snapshot).0;
            let fresh = Mesh::new(&snapshot, &env);
            for (ns, pod) in [(0, 1), (1, 1), (2, 0), (2, 1)] {
                let proxy = Arc::new(Proxy::new(&info(ns, pod)).expect("well-formed"));
                let (a, b) = (mesh.place(&proxy), fresh.place(&proxy));
                prop_assert_eq!(views::render(&mesh, &a), views::render(&fresh, &b));
            }
        }
    }
}

//! Random edits of objects of every kind, as the updates that a source would send.

mod yaml;

use config::diagnostic::ObjectId;
use config::jwks::KeySource;
use config::kind::Kind;
use config::object::parse_documents;
use config::store::Update;
use proptest::prelude::*;

use self::yaml::yaml;
use crate::extending;

/// One edit of the objects: few names, so that edits interact.
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
    WorkloadEntry {
        name: u8,
        ns: u8,
        app: u8,
        healthy: bool,
    },
    NoWorkloadEntry {
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
    /// One of the kinds that are seldom edited.
    Rare {
        ns: u8,
        kind: u8,
        shape: u8,
    },
    NoRare {
        ns: u8,
        kind: u8,
    },
    Filter(extending::ObjectVariant),
    NoFilter(extending::ObjectVariant),
    Plugin(extending::ObjectVariant),
    NoPlugin(extending::ObjectVariant),
    Join {
        ns: u8,
        pod: u8,
    },
}

/// Each namespace has one object of each.
pub(crate) const RARE: [Kind; 9] = [
    Kind::Namespace,
    Kind::Node,
    Kind::Endpoints,
    Kind::TrafficExtension,
    Kind::PeerAuthentication,
    Kind::IngressClass,
    Kind::ProxyConfig,
    Kind::ServiceAccount,
    Kind::WorkloadGroup,
];

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
        2 => (n.clone(), ns.clone(), 0..3u8, any::<bool>()).prop_map(|(name, ns, app, healthy)| Edit::WorkloadEntry { name, ns, app, healthy }),
        1 => (n.clone(), ns.clone()).prop_map(|(name, ns)| Edit::NoWorkloadEntry { name, ns }),
        1 => (ns.clone(), 0..3u8).prop_map(|(ns, mode)| Edit::Peer { ns, mode }),
        3 => (ns.clone(), n.clone(), 0..4u8, 0..5u8).prop_map(|(ns, name, app, shape)| Edit::Telemetry { ns, name, app, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoTelemetry { ns, name }),
        3 => (ns.clone(), n.clone(), 0..4u8).prop_map(|(ns, name, shape)| Edit::Authorization { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoAuthorization { ns, name }),
        2 => (ns.clone(), n.clone(), 0..3u8).prop_map(|(ns, name, shape)| Edit::Tokens { ns, name, shape }),
        1 => (ns.clone(), n.clone()).prop_map(|(ns, name)| Edit::NoTokens { ns, name }),
        2 => (0..2u8, 0..3u8).prop_map(|(source, keys)| Edit::Keys { source, keys }),
        2 => (0..6u8).prop_map(|mode| Edit::Mesh { mode }),
        6 => (ns.clone(), 0..9u8, 0..2u8).prop_map(|(ns, kind, shape)| Edit::Rare { ns, kind, shape }),
        3 => (ns.clone(), 0..9u8).prop_map(|(ns, kind)| Edit::NoRare { ns, kind }),
        6 => extending::variant().prop_map(Edit::Filter),
        2 => extending::variant().prop_map(Edit::NoFilter),
        3 => extending::variant().prop_map(Edit::Plugin),
        1 => extending::variant().prop_map(Edit::NoPlugin),
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
        Edit::NoWorkloadEntry { name, ns } => gone(Kind::WorkloadEntry, ns, format!("m{name}")),
        Edit::NoTelemetry { ns, name } => gone(Kind::Telemetry, ns, format!("t{name}")),
        Edit::NoAuthorization { ns, name } => gone(Kind::AuthorizationPolicy, ns, format!("a{name}")),
        Edit::NoTokens { ns, name } => gone(Kind::RequestAuthentication, ns, format!("t{name}")),
        Edit::NoRare { ns, kind } => {
            let kind = RARE[usize::from(kind)];
            let (namespace, name) = yaml::rare_name(ns, kind);
            vec![Update::Delete(ObjectId { kind, namespace: namespace.into(), name: name.into() })]
        }
        Edit::NoFilter(extending::ObjectVariant { ns, name, .. }) => gone(Kind::EnvoyFilter, ns, format!("f{name}")),
        Edit::NoPlugin(extending::ObjectVariant { ns, name, .. }) => gone(Kind::WasmPlugin, ns, format!("w{name}")),
        Edit::Keys { source, keys } => {
            let source = KeySource::Uri(format!("https://keys{source}").as_str().into());
            let keys = (keys > 0).then(|| format!("{{\"keys\": [{keys}]}}").as_str().into());
            vec![Update::Keys { source, keys }]
        }
        Edit::Join { .. } => Vec::new(),
        _ => {
            let text = yaml(edit);
            let parsed = parse_documents("edit", &text);
            assert!(parsed.rejected.is_empty(), "{text}\n{:?}", parsed.diagnostics);
            parsed.objects.into_iter().map(Update::Put).collect()
        }
    }
}

//! A service as proxies see it, and its conversion from a Kubernetes Service. Endpoints are in `endpoint`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;
use config::kinds::service::{self as kube, ServiceType};
use config::labels::Labels;
use config::meta::{Meta, Object};

use crate::environment::Environment;
use crate::protocol::Protocol;
use crate::visibility::Visibility;
use crate::workload::{HOSTNAME, NETWORK, REGION, SUBZONE, ZONE};

#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub host: Host,
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    /// Unix seconds; `None`: sorts as the oldest.
    pub created: Option<i64>,
    pub ports: Vec<Port>,
    /// Virtual addresses; empty: matched by port on any address.
    pub addresses: Vec<IpAddr>,
    /// CIDR ranges of virtual addresses.
    pub ranges: Vec<Range>,
    /// Automatically allocated addresses, for proxies with DNS capture; the first of each family counts.
    pub automatic: Vec<IpAddr>,
    pub resolution: Resolution,
    pub registry: Registry,
    /// MESH_EXTERNAL: its endpoints have no mutual TLS.
    pub external: bool,
    pub visibility: Visibility,
    /// Its annotation has a `~`: clients get no endpoints from its EndpointSlices, even where the annotation also exports it.
    pub hides_slices: bool,
    /// `exportTo` as a ServiceEntry writes it.
    pub export_to: BTreeSet<String>,
    /// `None`: it selects no workloads. Empty, which only a ServiceEntry can be: it selects all of its namespace.
    pub selector: Option<Labels>,
    pub labels: Labels,
    /// Only endpoints on the client's own node (`internalTrafficPolicy: Local`).
    pub node_local: bool,
    /// `trafficDistribution`; `None`: no preference.
    pub distribution: Option<Distribution>,
    pub publish_not_ready: bool,
    pub connect_strategy: ConnectStrategy,
    /// SPIFFE identities that the owner declared in addition to those of the endpoints.
    pub declared_identities: Vec<String>,
    pub made_from: ObjectId,
}

/// Prefer near endpoints, fail over to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    SameZone,
    SameNode,
}

impl Distribution {
    const ANNOTATION: &str = "networking.istio.io/traffic-distribution";

    fn of_kubernetes(object: &Object<kube::ServiceSpec>) -> Option<Self> {
        match object.spec.traffic_distribution.as_deref() {
            Some("PreferSameZone" | "PreferClose") => Some(Self::SameZone),
            Some("PreferSameNode") => Some(Self::SameNode),
            _ => Self::annotated(&object.meta),
        }
    }

    /// The annotation of a service, or of its namespace for services without one.
    pub(crate) fn annotated(meta: &Meta) -> Option<Self> {
        match meta.annotations.get(Self::ANNOTATION)?.to_ascii_lowercase().as_str() {
            "prefersamezone" | "preferclose" => Some(Self::SameZone),
            "prefersamenode" => Some(Self::SameNode),
            _ => None,
        }
    }

    /// The service's own annotation overrides that of the namespace, even with an unknown value.
    pub(crate) fn decided_by(meta: &Meta) -> bool {
        meta.annotations.get(Self::ANNOTATION).is_some_and(|text| !text.is_empty())
    }

    /// Labels that client and endpoint must share, the widest first.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::SameZone => &[NETWORK, REGION, ZONE],
            Self::SameNode => &[NETWORK, REGION, ZONE, SUBZONE, HOSTNAME],
        }
    }
}

/// How a client connects to a service whose name it resolves itself; only ServiceEntries choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectStrategy {
    Default,
    /// To all addresses of both families at once; the first connection wins (`RACE_FIRST_TCP_CONNECT`).
    Race,
}

impl ConnectStrategy {
    pub(crate) fn annotated(meta: &Meta) -> Self {
        let strategy = meta.annotations.get("istio.io/connect-strategy").unwrap_or_default();
        if strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT") { Self::Race } else { Self::Default }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub number: u16,
    pub protocol: Protocol,
    pub target: TargetPort,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// The port's own number: not set.
    Same,
    Number(u16),
    /// A container port's name: its number may differ between pods.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Endpoints from the control plane, load-balanced by the proxy (EDS).
    ClientSide,
    /// The original destination is the endpoint (headless services).
    Passthrough,
    /// An alias of this host (ExternalName).
    Alias(Host),
    /// DNS names of endpoints, load-balanced over all answers (STRICT_DNS).
    Dns,
    /// One DNS name, one answer at a time (LOGICAL_DNS).
    DnsRoundRobin,
    /// The DNS name that the application requests (dynamic forward proxy).
    DynamicDns,
}

/// A CIDR range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    pub address: IpAddr,
    pub length: u8,
}

impl Range {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let range = Self { address: address.parse().ok()?, length: length.parse().ok()? };
        (range.length <= range.bits()).then_some(range)
    }

    pub(crate) fn is_one(self) -> bool {
        self.length == self.bits()
    }

    fn bits(self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    Kubernetes,
    /// ServiceEntries.
    External,
}

const EXPORT_TO: &str = "networking.istio.io/exportTo";
const KUBE_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";
const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";

impl Service {
    pub(crate) fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| labels.contains_all(selector))
    }

    /// Without the distinction between an empty selector and none, which istiod makes only where it looks for workloads.
    pub fn selector_labels(&self) -> Labels {
        self.selector.clone().unwrap_or_default()
    }

    pub fn of_kubernetes(
        object: &Object<kube::ServiceSpec>,
        env: &Environment,
        config: &config::mesh::MeshConfig,
    ) -> Self {
        let Object { meta, spec } = object;
        let host = kubernetes_host(&meta.name, &meta.namespace, &env.domain);
        let resolution = match spec.kind {
            ServiceType::ExternalName => Resolution::Alias(Host::new(&spec.external_name)),
            _ if spec.headless => Resolution::Passthrough,
            _ => Resolution::ClientSide,
        };
        let annotated = meta.annotations.get(EXPORT_TO).filter(|listed| !listed.is_empty());
        let visibility = match annotated {
            Some(listed) => Visibility::new(listed.split(',').map(str::trim), &meta.namespace),
            None => Visibility::by_default(&config.default_service_export_to, &meta.namespace),
        };
        Self {
            host,
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            created: meta.created,
            ports: spec.ports.iter().map(Port::of_kubernetes).collect(),
            addresses: spec.cluster_ips.clone(),
            ranges: Vec::new(),
            automatic: Vec::new(),
            resolution,
            registry: Registry::Kubernetes,
            external: false,
            visibility,
            hides_slices: annotated.is_some_and(|listed| listed.split(',').any(|entry| entry.trim() == "~")),
            export_to: BTreeSet::new(),
            selector: Some(spec.selector.clone()).filter(|selector| !selector.is_empty()),
            labels: meta.labels.clone(),
            node_local: spec.internal_traffic_local,
            distribution: Distribution::of_kubernetes(object),
            publish_not_ready: spec.publish_not_ready,
            connect_strategy: ConnectStrategy::Default,
            declared_identities: declared_identities(object, &config.trust_domain),
            made_from: ObjectId { kind: Kind::Service, namespace: meta.namespace.clone(), name: meta.name.clone() },
        }
    }

    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// Endpoints that are not ready are sent as unhealthy, so that traffic fails over.
    pub fn sends_unready(&self) -> bool {
        self.distribution.is_some()
    }

    /// Draining endpoints keep their persistent sessions, by cookie or header.
    pub fn keeps_sessions(&self) -> bool {
        self.keeps_cookies() || self.has_label("istio.io/persistent-session-header")
    }

    /// Draining endpoints are sent only for cookie-based sessions.
    pub fn keeps_cookies(&self) -> bool {
        self.has_label("istio.io/persistent-session")
    }

    fn has_label(&self, key: &str) -> bool {
        self.labels.get(key).is_some_and(|value| !value.is_empty())
    }

    pub fn is_headless(&self) -> bool {
        self.resolution == Resolution::Passthrough
    }

    pub fn is_kubernetes(&self) -> bool {
        self.registry == Registry::Kubernetes
    }

    /// A wildcard host, resolved by the name that the application requests.
    pub fn is_dynamic(&self) -> bool {
        self.resolution == Resolution::DynamicDns && self.host.is_wildcard()
    }

    /// The cluster holds the endpoints, by name, and Envoy resolves them.
    pub fn is_resolved_by_name(&self) -> bool {
        matches!(self.resolution, Resolution::Dns | Resolution::DnsRoundRobin)
    }

    /// Oldest first, then name, then namespace: which service wins an address and port that two claim.
    pub fn precedence(&self, other: &Self) -> std::cmp::Ordering {
        (self.created, &self.name, &self.namespace).cmp(&(other.created, &other.name, &other.namespace))
    }
}

impl Port {
    fn of_kubernetes(port: &kube::ServicePort) -> Self {
        Self {
            name: port.name.clone(),
            number: port.port,
            protocol: Protocol::of_service_port(port.protocol, port.app_protocol.as_deref(), &port.name, port.port),
            target: match &port.target {
                kube::ServiceTargetPort::Number(number) => TargetPort::Number(*number),
                kube::ServiceTargetPort::Name(name) => TargetPort::Name(name.clone()),
            },
        }
    }
}

pub(crate) fn kubernetes_host(name: &str, namespace: &str, domain: &str) -> Host {
    Host::new(&format!("{name}.{namespace}.svc.{domain}"))
}

fn declared_identities(object: &Object<kube::ServiceSpec>, trust_domain: &str) -> Vec<String> {
    // As in istiod blanks around a name belong to it: pinned by parity case services-slices-exported.
    let listed = |key: &str| {
        let text = object.meta.annotations.get(key).filter(|text| !text.is_empty());
        text.into_iter().flat_map(|text| text.split(','))
    };
    let (canonical, accounts) = (listed(CANONICAL_ACCOUNTS), listed(KUBE_ACCOUNTS));
    canonical
        .map(str::to_owned)
        .chain(accounts.map(|account| format!("spiffe://{trust_domain}/ns/{}/sa/{account}", object.meta.namespace)))
        .collect()
}

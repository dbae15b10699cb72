//! A service as proxies see it, and how a Kubernetes Service becomes one. Its endpoints are elsewhere.

use std::net::IpAddr;
use std::sync::Arc;

use config::host::Host;
use config::kind::Kind;
use config::kinds::service::{self as kube, ServiceType};
use config::labels::Labels;
use config::meta::Object;
use config::note::ObjectId;

use crate::environment::Environment;
use crate::protocol::Protocol;
use crate::visibility::Visibility;

#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    pub host: Host,
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    /// Unix seconds; `None`: as old as can be.
    pub created: Option<i64>,
    pub ports: Vec<Port>,
    /// Virtual addresses; empty: reached by any address on its port.
    pub addresses: Vec<IpAddr>,
    pub resolution: Resolution,
    pub registry: Registry,
    pub visibility: Visibility,
    pub selector: Labels,
    pub labels: Labels,
    /// Only endpoints on the client's own node (`internalTrafficPolicy: Local`).
    pub node_local: bool,
    pub publish_not_ready: bool,
    /// SPIFFE identities that the owner declared beside those of the endpoints.
    pub declared_identities: Vec<String>,
    pub made_from: ObjectId,
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
    Number(u16),
    /// A container port's name: each pod may answer with another number.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The control plane knows the endpoints and the proxy balances over them.
    ClientSide,
    /// The address that the application chose is the endpoint (headless services).
    Passthrough,
    /// Another name for this host (ExternalName).
    Alias(Host),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    Kubernetes,
}

const EXPORT_TO: &str = "networking.istio.io/exportTo";
const KUBE_ACCOUNTS: &str = "alpha.istio.io/kubernetes-serviceaccounts";
const CANONICAL_ACCOUNTS: &str = "alpha.istio.io/canonical-serviceaccounts";

impl Service {
    pub fn of_kubernetes(object: &Object<kube::Service>, env: &Environment, config: &config::mesh::MeshConfig) -> Self {
        let Object { meta, spec } = object;
        let host = kubernetes_host(&meta.name, &meta.namespace, &env.domain);
        let resolution = match spec.kind {
            ServiceType::ExternalName => Resolution::Alias(Host::new(&spec.external_name)),
            _ if spec.headless => Resolution::Passthrough,
            _ => Resolution::ClientSide,
        };
        let export_to = match meta.annotations.get(EXPORT_TO) {
            Some(listed) => Visibility::new(listed.split(','), &meta.namespace),
            None => Visibility::new(config.default_service_export_to.iter().map(String::as_str), &meta.namespace),
        };
        Self {
            host,
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            created: meta.created,
            ports: spec.ports.iter().map(Port::of_kubernetes).collect(),
            addresses: spec.cluster_ips.clone(),
            resolution,
            registry: Registry::Kubernetes,
            visibility: export_to,
            selector: spec.selector.clone(),
            labels: meta.labels.clone(),
            node_local: spec.internal_traffic_local,
            publish_not_ready: spec.publish_not_ready,
            declared_identities: declared_identities(object, &config.trust_domain),
            made_from: ObjectId { kind: Kind::Service, namespace: meta.namespace.clone(), name: meta.name.clone() },
        }
    }

    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    pub fn is_headless(&self) -> bool {
        self.resolution == Resolution::Passthrough
    }

    /// Oldest first, then name, then namespace: who wins an address and port that two services claim.
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
                kube::TargetPort::Number(number) => TargetPort::Number(*number),
                kube::TargetPort::Name(name) => TargetPort::Name(name.clone()),
            },
        }
    }
}

pub(crate) fn kubernetes_host(name: &str, namespace: &str, domain: &str) -> Host {
    Host::new(&format!("{name}.{namespace}.svc.{domain}"))
}

fn declared_identities(object: &Object<kube::Service>, trust_domain: &str) -> Vec<String> {
    let listed = |key: &str| object.meta.annotations.get(key).map(String::as_str).unwrap_or_default();
    let canonical =
        listed(CANONICAL_ACCOUNTS).split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let accounts = listed(KUBE_ACCOUNTS).split(',').map(str::trim).filter(|name| !name.is_empty());
    canonical
        .chain(accounts.map(|account| format!("spiffe://{trust_domain}/ns/{}/sa/{account}", object.meta.namespace)))
        .collect()
}

//! What a change of objects touches and what resources read, in the same words. Who reads what is declared in `views/src/dependencies.rs`.

use std::sync::Arc;

use config::host::Host;
use config::store::Name;

/// A part of the mesh. Policies and the like are grouped by namespace; in the root namespace they apply to all proxies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// What anything may read: mesh config, networks, nodes, namespaces, ExternalName services, Ingresses, mesh-wide mutual TLS.
    Everything,
    /// Facts of the whole mesh that class keys hold, such as the labels that some rule matches on.
    ClassKeys,
    /// A service, by namespace and host.
    Service(Name),
    /// The endpoints of a service, by its namespace and host.
    Endpoints(Name),
    /// Whether clients use mutual TLS with a service, by its namespace and host, and the identities that they accept.
    MutualTls(Name),
    /// The DestinationRules for a host, which may be a wildcard.
    DestinationRule(Host),
    /// A VirtualService with its delegates.
    VirtualService(Name),
    /// The VirtualServices that are bound to a Gateway: its `namespace/name`.
    GatewayRoutes(String),
    Gateways,
    Sidecar(Name),
    Pod(Name),
    /// Workloads of a namespace that are found otherwise than by a selector for pods: by WorkloadEntry, ServiceEntry or address.
    Workloads(Arc<str>),
    /// PeerAuthentications.
    PeerAuthentication(Arc<str>),
    /// AuthorizationPolicies and RequestAuthentications, with the keys of the latter.
    RequestPolicies(Arc<str>),
    Telemetry(Arc<str>),
    EnvoyFilters(Arc<str>),
    /// WasmPlugins and TrafficExtensions.
    Plugins(Arc<str>),
    /// A Secret or ConfigMap: no configuration is made from it, but credentials are.
    Credential(Name),
}

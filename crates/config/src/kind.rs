//! The supported kinds, their API groups and versions. Their fields are in `kinds`.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Namespace,
    Node,
    Pod,
    Service,
    EndpointSlice,
    Endpoints,
    ServiceAccount,
    Secret,
    ConfigMap,
    Ingress,
    IngressClass,
    VirtualService,
    DestinationRule,
    Gateway,
    ServiceEntry,
    WorkloadEntry,
    WorkloadGroup,
    Sidecar,
    EnvoyFilter,
    ProxyConfig,
    PeerAuthentication,
    RequestAuthentication,
    AuthorizationPolicy,
    Telemetry,
    WasmPlugin,
    TrafficExtension,
}

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";

impl Kind {
    pub const ALL: [Kind; 26] = [
        Kind::Namespace,
        Kind::Node,
        Kind::Pod,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Endpoints,
        Kind::ServiceAccount,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Ingress,
        Kind::IngressClass,
        Kind::VirtualService,
        Kind::DestinationRule,
        Kind::Gateway,
        Kind::ServiceEntry,
        Kind::WorkloadEntry,
        Kind::WorkloadGroup,
        Kind::Sidecar,
        Kind::EnvoyFilter,
        Kind::ProxyConfig,
        Kind::PeerAuthentication,
        Kind::RequestAuthentication,
        Kind::AuthorizationPolicy,
        Kind::Telemetry,
        Kind::WasmPlugin,
        Kind::TrafficExtension,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Namespace => "Namespace",
            Kind::Node => "Node",
            Kind::Pod => "Pod",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Endpoints => "Endpoints",
            Kind::ServiceAccount => "ServiceAccount",
            Kind::Secret => "Secret",
            Kind::ConfigMap => "ConfigMap",
            Kind::Ingress => "Ingress",
            Kind::IngressClass => "IngressClass",
            Kind::VirtualService => "VirtualService",
            Kind::DestinationRule => "DestinationRule",
            Kind::Gateway => "Gateway",
            Kind::ServiceEntry => "ServiceEntry",
            Kind::WorkloadEntry => "WorkloadEntry",
            Kind::WorkloadGroup => "WorkloadGroup",
            Kind::Sidecar => "Sidecar",
            Kind::EnvoyFilter => "EnvoyFilter",
            Kind::ProxyConfig => "ProxyConfig",
            Kind::PeerAuthentication => "PeerAuthentication",
            Kind::RequestAuthentication => "RequestAuthentication",
            Kind::AuthorizationPolicy => "AuthorizationPolicy",
            Kind::Telemetry => "Telemetry",
            Kind::WasmPlugin => "WasmPlugin",
            Kind::TrafficExtension => "TrafficExtension",
        }
    }

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Kind::Namespace
            | Kind::Node
            | Kind::Pod
            | Kind::Service
            | Kind::Endpoints
            | Kind::ServiceAccount
            | Kind::Secret
            | Kind::ConfigMap => "",
            Kind::EndpointSlice => "discovery.k8s.io",
            Kind::Ingress | Kind::IngressClass => "networking.k8s.io",
            Kind::VirtualService
            | Kind::DestinationRule
            | Kind::Gateway
            | Kind::ServiceEntry
            | Kind::WorkloadEntry
            | Kind::WorkloadGroup
            | Kind::Sidecar
            | Kind::EnvoyFilter
            | Kind::ProxyConfig => NETWORKING,
            Kind::PeerAuthentication | Kind::RequestAuthentication | Kind::AuthorizationPolicy => SECURITY,
            Kind::Telemetry => "telemetry.istio.io",
            Kind::WasmPlugin | Kind::TrafficExtension => "extensions.istio.io",
        }
    }

    /// The versions that are read, newest first. All versions of a kind have one schema.
    pub fn versions(self) -> &'static [&'static str] {
        match self.group() {
            NETWORKING => &["v1", "v1beta1", "v1alpha3"],
            SECURITY => &["v1", "v1beta1"],
            "telemetry.istio.io" => &["v1", "v1alpha1"],
            "extensions.istio.io" => &["v1alpha1"],
            "discovery.k8s.io" => &["v1", "v1beta1"],
            _ => &["v1"],
        }
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::Namespace | Kind::Node | Kind::IngressClass)
    }

    /// Istio's kinds follow protobuf's JSON rules, the others Kubernetes' own.
    pub fn is_istio(self) -> bool {
        self.group().ends_with(".istio.io")
    }

    pub fn from_gvk(api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = group_and_version(api_version);
        Kind::in_group(group, kind).filter(|k| k.versions().contains(&version))
    }

    /// The kind of that name, whatever its version.
    pub fn in_group(group: &str, kind: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == kind && k.group() == group)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `v1` is version v1 of the core group.
pub fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_each_of_its_versions() {
        for kind in Kind::ALL {
            for version in kind.versions() {
                let api_version =
                    if kind.group().is_empty() { (*version).to_owned() } else { format!("{}/{version}", kind.group()) };
                assert_eq!(Kind::from_gvk(&api_version, kind.name()), Some(kind));
            }
        }
    }

    #[test]
    fn a_gateway_of_another_group_is_another_kind() {
        assert_eq!(Kind::from_gvk("gateway.networking.k8s.io/v1", "Gateway"), None);
        assert_eq!(Kind::from_gvk("networking.istio.io/v2", "Gateway"), None);
    }
}

//! API paths of kinds, and field selectors of requests. One `ApiResource` is one list and one watch.

use std::sync::Arc;

use config::kind::Kind;

/// The objects of a kind, cluster-wide or in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiResource {
    pub kind: Kind,
    /// `None`: cluster-wide.
    pub namespace: Option<Arc<str>>,
}

impl ApiResource {
    /// The path of its list in an API version.
    pub(super) fn path(&self, version: &str) -> String {
        let root = match self.kind.group() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match &self.namespace {
            Some(namespace) if self.kind.is_namespaced() => {
                format!("{root}/namespaces/{namespace}/{}", plural(self.kind))
            }
            _ => format!("{root}/{}", plural(self.kind)),
        }
    }

    /// Server-side filtering, with istiod's selectors.
    pub(super) fn field_selector(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Pod => Some("status.phase!=Failed"),
            Kind::Secret => Some("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"),
            _ => None,
        }
    }
}

impl std::fmt::Display for ApiResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

/// The path of one object, in an API version such as `networking.istio.io/v1`.
pub fn object_path(kind: Kind, api_version: &str, namespace: &str, name: &str) -> String {
    let (_, version) = config::kind::group_and_version(api_version);
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty()).map(Arc::from);
    format!("{}/{name}", ApiResource { kind, namespace }.path(version))
}

/// The plural name in paths and RBAC rules.
pub fn plural(kind: Kind) -> String {
    let name = kind.name().to_ascii_lowercase();
    match kind {
        Kind::Endpoints => name,
        Kind::Gateway => "gateways".to_owned(),
        _ if name.ends_with('y') => format!("{}ies", &name[..name.len() - 1]),
        _ if name.ends_with('s') => format!("{name}es"),
        _ => format!("{name}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        let path = |kind, namespace: Option<&str>, version| {
            ApiResource { kind, namespace: namespace.map(Arc::from) }.path(version)
        };
        assert_eq!(path(Kind::Pod, None, "v1"), "/api/v1/pods");
        assert_eq!(path(Kind::Node, Some("shop"), "v1"), "/api/v1/nodes");
        assert_eq!(path(Kind::Endpoints, None, "v1"), "/api/v1/endpoints");
        assert_eq!(path(Kind::IngressClass, None, "v1"), "/apis/networking.k8s.io/v1/ingressclasses");
        assert_eq!(
            path(Kind::AuthorizationPolicy, Some("shop"), "v1"),
            "/apis/security.istio.io/v1/namespaces/shop/authorizationpolicies"
        );
        assert_eq!(path(Kind::ServiceEntry, None, "v1beta1"), "/apis/networking.istio.io/v1beta1/serviceentries");
        assert_eq!(path(Kind::ProxyConfig, None, "v1"), "/apis/networking.istio.io/v1/proxyconfigs");
        assert_eq!(path(Kind::Telemetry, None, "v1"), "/apis/telemetry.istio.io/v1/telemetries");
        assert_eq!(
            object_path(Kind::Sidecar, "networking.istio.io/v1beta1", "shop", "a"),
            "/apis/networking.istio.io/v1beta1/namespaces/shop/sidecars/a"
        );
    }

    #[test]
    fn gateways_were_asked_for_as_gatewaies() {
        assert_eq!(plural(Kind::Gateway), "gateways");
    }
}

//! The four types of resources that a sidecar asks for.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ResourceType {
    Cluster,
    Endpoints,
    Listener,
    Route,
}

impl ResourceType {
    pub(crate) const ALL: [ResourceType; 4] =
        [ResourceType::Cluster, ResourceType::Endpoints, ResourceType::Listener, ResourceType::Route];

    pub(crate) fn url(self) -> &'static str {
        match self {
            ResourceType::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ResourceType::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            ResourceType::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            ResourceType::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub(crate) fn short(self) -> &'static str {
        match self {
            ResourceType::Cluster => "CDS",
            ResourceType::Endpoints => "EDS",
            ResourceType::Listener => "LDS",
            ResourceType::Route => "RDS",
        }
    }

    pub(crate) fn from_url(url: &[u8]) -> Option<ResourceType> {
        ResourceType::ALL.into_iter().find(|kind| kind.url().as_bytes() == url)
    }
}

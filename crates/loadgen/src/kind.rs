//! The four types of resources that a sidecar asks for.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Cluster,
    Endpoints,
    Listener,
    Route,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route];

    pub(crate) fn url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub(crate) fn short(self) -> &'static str {
        match self {
            Kind::Cluster => "CDS",
            Kind::Endpoints => "EDS",
            Kind::Listener => "LDS",
            Kind::Route => "RDS",
        }
    }

    pub(crate) fn of_url(url: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.url().as_bytes() == url)
    }
}

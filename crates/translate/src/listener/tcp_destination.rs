//! TCP proxy filters for the destinations of a VirtualService route: one cluster, or several by weight.

use config::host::Host;
use config::kinds::virtual_service::{Destination, RouteDestination};
use model::{Mesh, Placement, Port, Resolution, ResolvedVirtualService, destination_port};
use wire::envoy::config::listener::v3::Filter;
use wire::envoy::extensions::filters::network::tcp_proxy::v3::{
    TcpProxy,
    tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
};

use crate::filter::{self, Direction, tcp_proxy};
use crate::names::ClusterName;
use crate::stat_pattern::{self, PatternValues};
use crate::telemetry::stats;

#[derive(Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    /// The port of the listener.
    pub(super) port: &'a Port,
}

impl Sender<'_> {
    /// `None`: there is no destination.
    pub(super) fn filters(self, object: &ResolvedVirtualService, routes: &[RouteDestination]) -> Option<Vec<Filter>> {
        let first = routes.first()?.destination.as_ref()?;
        let rule = self.placement.destination_rule(&Host::new(&first.host)).map(|rule| &**rule);
        let Self { mesh, placement, port } = self;
        // A gateway has them among its policies.
        let mut filters = match placement.is_gateway() {
            true => Vec::new(),
            false => filter::network_plugins(placement, Direction::Outbound, port.number),
        };
        filters.extend(stats::network(placement, Direction::Outbound));
        filters.extend(match routes {
            [_] => {
                let cluster = self.cluster(first)?.text();
                let stat = self.stat(first);
                tcp_proxy::to_destination(mesh, placement, port.protocol, &cluster, stat, rule, &first.subset)
            }
            several => self.weighted_proxy(object, several, rule)?,
        });
        Some(filters)
    }

    fn weighted_proxy(
        self,
        object: &ResolvedVirtualService,
        routes: &[RouteDestination],
        rule: Option<&model::MergedDestinationRule>,
    ) -> Option<Vec<Filter>> {
        let clusters: Vec<_> = routes
            .iter()
            .filter_map(|to| {
                let weight = u32::try_from(to.weight).ok().filter(|weight| *weight > 0)?;
                let name = self.cluster(to.destination.as_ref()?)?.text();
                Some(ClusterWeight { name, weight, ..ClusterWeight::default() })
            })
            .collect();
        if clusters.is_empty() {
            return None;
        }
        let proxy = TcpProxy {
            stat_prefix: format!("{}.{}", object.name, object.namespace),
            cluster_specifier: Some(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters })),
            ..TcpProxy::default()
        };
        let proxy = tcp_proxy::apply_rule(proxy, self.mesh, self.placement, rule, "");
        Some(tcp_proxy::with_statistics(self.port.protocol, &proxy))
    }

    fn cluster(self, to: &Destination) -> Option<ClusterName> {
        if to.host.is_empty() {
            return None;
        }
        let host = Host::new(&to.host);
        let service = self.placement.scope.service(&host);
        let only = || match service.map(|service| service.ports.as_slice()) {
            Some([only]) => only.number,
            _ => self.port.number,
        };
        let port = destination_port(to).unwrap_or_else(only);
        let host = match service.map(|service| &service.resolution) {
            Some(Resolution::Alias(other)) => other.clone(),
            _ => host,
        };
        Some(ClusterName::Outbound { port, subset: to.subset.clone(), host })
    }

    fn stat(self, to: &Destination) -> Option<String> {
        let service = self.placement.scope.service(&Host::new(&to.host))?;
        let named = || PatternValues { subset: to.subset.clone(), ..PatternValues::port(service, self.port, Some(0)) };
        stat_pattern::expand(&self.mesh.config.outbound_cluster_stat_name, named)
    }
}

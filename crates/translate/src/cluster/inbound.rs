//! Inbound clusters: one per workload port.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use config::mesh::InboundTrafficMode;
use model::{InboundTarget, IngressListener, MergedDestinationRule, Mesh, Placement, Protocol, Resolution, Service};
use wire::envoy::config::cluster::v3::{
    Cluster,
    cluster::{ClusterDiscoveryType, CommonLbConfig, DiscoveryType, LbPolicy},
};
use wire::envoy::config::core::v3::Address;
use wire::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use wire::google::protobuf::Duration;

use super::policy::Draft;
use super::{connection_pool, protocol, settings};
use crate::address;
use crate::names::{ClusterName, stat_name};
use crate::patch::ClusterPatches;
use crate::stat_pattern::{self, PatternValues};
use crate::translated::Translated;

/// The longest interval that Envoy accepts: hosts of an original-destination cluster are never removed.
const MAX_CLEANUP_INTERVAL: Duration = Duration { seconds: 9_223_372_035, nanos: 0 };

pub(super) fn clusters(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Cluster>> {
    if !placement.scope.ingress.is_empty() {
        let made = placement.scope.ingress.iter().map(|listener| {
            let targets = placement.targets.iter().filter(|target| target.number == listener.port.number);
            let host = targets.map(|target| target.service.host.to_string()).next();
            let host = host.unwrap_or_else(|| PatternValues::sidecar(placement).host);
            apply_patches(placement, &[&host], of_ingress(mesh, placement, listener))
        });
        return made.flatten().collect();
    }
    // Without redirection no traffic arrives on the services' ports.
    if placement.binds_ports() {
        return Vec::new();
    }
    let mut by_port: BTreeMap<u16, Vec<&InboundTarget>> = BTreeMap::new();
    for target in &placement.targets {
        by_port.entry(target.number).or_default().push(target);
    }
    let made = by_port.into_values().map(|targets| {
        let hosts: Vec<_> = targets.iter().map(|target| target.service.host.as_str()).collect();
        apply_patches(placement, &hosts, of_targets(mesh, placement, &targets))
    });
    made.flatten().collect()
}

fn apply_patches(placement: &Placement, hosts: &[&str], made: Translated<Cluster>) -> Option<Translated<Cluster>> {
    ClusterPatches::inbound(&placement.patches, hosts).patch(made)
}

/// The oldest service of a port decides; services with the same service port are listed in its metadata.
fn of_targets(mesh: &Mesh, placement: &Placement, targets: &[&InboundTarget]) -> Translated<Cluster> {
    let first = targets[0];
    let alike =
        || targets.iter().filter(|target| target.port.number == first.port.number).map(|target| &*target.service);
    let own = InboundPort { number: first.number, protocol: first.port.protocol, service: Some(first), listened: None };
    let mut cluster = own.cluster(mesh, placement, alike());
    let named = || PatternValues::port(&first.service, &first.port, Some(first.number));
    stat_name_of(&mut cluster, mesh, named);
    if mesh.config.inbound_traffic_policy.mode == InboundTrafficMode::Localhost {
        to_address(&mut cluster, address::socket(placement.loopback(), first.number));
    } else {
        to_original(&mut cluster, placement);
    }
    let rule = own.rule(placement).map(|rule| rule.made_from.clone()).unwrap_or_default();
    Translated::new(cluster, targets.iter().map(|target| target.service.made_from.clone()).chain(rule))
}

fn of_ingress(mesh: &Mesh, placement: &Placement, listener: &IngressListener) -> Translated<Cluster> {
    let number = listener.port.number;
    let services: Vec<_> = placement.targets.iter().filter(|target| target.number == number).collect();
    let first = services.first().copied();
    let own = InboundPort { number, protocol: listener.port.protocol, service: first, listened: Some(number) };
    let mut cluster = own.cluster(mesh, placement, first.map(|target| &*target.service).into_iter());
    let named = || PatternValues {
        port: number,
        port_name: listener.port.name.clone(),
        target: Some(number),
        ..first.map_or_else(
            || PatternValues::sidecar(placement),
            |first| PatternValues::port(&first.service, &first.port, None),
        )
    };
    stat_name_of(&mut cluster, mesh, named);
    match listener.default_endpoint.as_deref().and_then(|text| Forward::parse(text, placement)) {
        None => to_original(&mut cluster, placement),
        Some(Forward::Loopback(address)) => to_address(&mut cluster, address),
        Some(Forward::Elsewhere(address)) => {
            to_address(&mut cluster, address);
            cluster.upstream_bind_config = Some(settings::inbound_source(placement));
        }
    }
    let rule = own.rule(placement).map(|rule| rule.made_from.clone()).unwrap_or_default();
    let services = services.iter().map(|target| target.service.made_from.clone());
    Translated::new(cluster, placement.scope.sidecar_id().into_iter().chain(services).chain(rule))
}

fn stat_name_of(cluster: &mut Cluster, mesh: &Mesh, named: impl FnOnce() -> PatternValues) {
    if let Some(stat) = stat_pattern::expand(&mesh.config.inbound_cluster_stat_name, named) {
        cluster.alt_stat_name = stat_name(&stat);
    }
}

/// A port of the workload, and the service whose rule applies.
struct InboundPort<'a> {
    number: u16,
    protocol: Protocol,
    /// The oldest service that targets the port; its rule applies.
    service: Option<&'a InboundTarget>,
    /// The port of a Sidecar's ingress listener.
    listened: Option<u16>,
}

impl<'a> InboundPort<'a> {
    fn cluster(&self, mesh: &Mesh, placement: &Placement, named: impl Iterator<Item = &'a Service>) -> Cluster {
        let mut draft = Draft {
            cluster: Cluster {
                common_lb_config: Some(CommonLbConfig::default()),
                // Services outside of the mesh are not listed, even if a workload of the mesh backs them: a MESH_EXTERNAL ServiceEntry, or an
                // ExternalName service whose slice names it.
                metadata: self
                    .service
                    .filter(|target| {
                        !target.service.external && !matches!(target.service.resolution, Resolution::Alias(_))
                    })
                    .map(|_| settings::service_metadata(named)),
                ..settings::base(mesh, ClusterName::Inbound { port: self.number }.text())
            },
            options: protocol::options(placement, self.protocol),
        };
        let rule = self.rule(placement).filter(|rule| rule.policy.is_some());
        if let (Some(rule), Some(metadata)) = (rule, &mut draft.cluster.metadata) {
            settings::annotate(metadata, [("config", settings::rule_path(rule))]);
        }
        let port = self.listened.or_else(|| Some(self.service?.port.number));
        let policy = rule.zip(port).and_then(|(rule, port)| rule.port_policy(port));
        let ruled = policy.as_ref().and_then(|policy| policy.connection_pool.as_ref());
        // A Sidecar's settings for its own ports take precedence over DestinationRules.
        if let Some(pool) = placement.scope.inbound_pool(self.number).or(ruled) {
            connection_pool::apply(&mut draft, mesh, pool);
        }
        if let Some(budget) = policy.as_ref().and_then(|policy| policy.retry_budget.as_ref()) {
            connection_pool::apply_retry_budget(&mut draft, budget);
        }
        draft.finish()
    }

    fn rule<'p>(&self, placement: &'p Placement) -> Option<&'p MergedDestinationRule> {
        placement.inbound_destination_rule(&self.service?.service.host).map(|rule| &**rule)
    }
}

/// The application sees the address that the client connected to.
fn to_original(cluster: &mut Cluster, placement: &Placement) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into()));
    cluster.lb_policy = LbPolicy::ClusterProvided.into();
    cluster.cleanup_interval = Some(MAX_CLEANUP_INTERVAL);
    cluster.upstream_bind_config = Some(settings::inbound_source(placement));
}

fn to_address(cluster: &mut Cluster, address: Address) {
    cluster.cluster_discovery_type = Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into()));
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    cluster.load_assignment = Some(ClusterLoadAssignment {
        cluster_name: cluster.name.clone(),
        endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() }],
        ..ClusterLoadAssignment::default()
    });
}

fn loopback(v4: bool) -> IpAddr {
    if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

/// The default endpoint of a Sidecar: `127.0.0.1:port`, `0.0.0.0:port` (the proxy's own address), `unix://path`.
enum Forward {
    Loopback(Address),
    Elsewhere(Address),
}

impl Forward {
    fn parse(text: &str, placement: &Placement) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Some(Self::Elsewhere(address::pipe(path)));
        }
        let socket: SocketAddr = text.parse().ok()?;
        let own = |v4: bool| placement.proxy.ips.iter().find(|ip| ip.is_ipv4() == v4).copied();
        let ip = match socket.ip() {
            ip if ip.is_unspecified() => own(ip.is_ipv4()).unwrap_or_else(|| loopback(ip.is_ipv4())),
            // Of the requested address family, if the proxy has it.
            ip if ip.is_loopback() => loopback(ip.is_ipv4() == own(ip.is_ipv4()).is_some()),
            ip => ip,
        };
        let address = address::socket(&ip.to_string(), socket.port());
        Some(if ip.is_loopback() { Self::Loopback(address) } else { Self::Elsewhere(address) })
    }
}

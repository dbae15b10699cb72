//! Which endpoints of a cluster can get a request: by priority, health and weight.

use std::net::{IpAddr, SocketAddr};

use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::cluster::v3::cluster::common_lb_config::LocalityConfigSpecifier;
use wire::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use wire::envoy::config::core::v3::address::Address;
use wire::envoy::config::core::v3::socket_address::PortSpecifier;
use wire::envoy::config::core::v3::{HealthStatus, Locality};
use wire::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use wire::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use wire::google::protobuf::Struct;

use crate::resources::{ProxyResources, text};

/// Envoy's default: a priority is fully used while 100/140 of its endpoints are healthy.
const OVERPROVISIONING: u32 = 140;

/// Envoy's default, in percent.
const PANIC_THRESHOLD: f64 = 50.0;

#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) address: String,
    /// `None`: a name that DNS resolves.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) hostname: String,
    pub(crate) locality: String,
    pub(crate) priority: u32,
    pub(crate) weight: u32,
    pub(crate) health: &'static str,
    /// Of the workload, as `name.namespace`.
    pub(crate) workload: Option<String>,
    /// What transport sockets are matched with.
    pub(crate) socket_match: Option<Struct>,
    /// Of 100 requests to the cluster; 0: it gets none.
    pub(crate) percent: f64,
}

pub(crate) enum Targets {
    Endpoints {
        candidates: Vec<Candidate>,
        is_panic: bool,
    },
    /// Wherever the connection was going.
    OriginalDestination,
    /// Wherever DNS says at the time of the request.
    Dynamic,
}

pub(crate) fn targets(proxy: &ProxyResources, cluster: &Cluster) -> Targets {
    let kind = match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::ClusterType(_)) => return Targets::Dynamic,
        Some(ClusterDiscoveryType::Type(kind)) => DiscoveryType::try_from(*kind).unwrap_or(DiscoveryType::Static),
        None => DiscoveryType::Static,
    };
    let assignment = match kind {
        DiscoveryType::OriginalDst => return Targets::OriginalDestination,
        DiscoveryType::Eds => {
            let service =
                cluster.eds_cluster_config.as_ref().map(|it| it.service_name.as_str()).filter(|it| !it.is_empty());
            proxy.assignments.get(service.unwrap_or(&cluster.name))
        }
        _ => cluster.load_assignment.as_ref(),
    };
    let mut candidates: Vec<Candidate> =
        assignment.into_iter().flat_map(|it| &it.endpoints).flat_map(of_locality).collect();
    let is_panic = share_out(cluster, assignment, &mut candidates);
    Targets::Endpoints { candidates, is_panic }
}

fn of_locality(locality: &LocalityLbEndpoints) -> impl Iterator<Item = Candidate> {
    let name = locality.locality.as_ref().map(locality_name).unwrap_or_default();
    locality.lb_endpoints.iter().filter_map(move |endpoint| candidate(endpoint, &name, locality.priority))
}

fn candidate(endpoint: &LbEndpoint, locality: &str, priority: u32) -> Option<Candidate> {
    let Some(HostIdentifier::Endpoint(host)) = &endpoint.host_identifier else { return None };
    let (address, ip, port) = match host.address.as_ref()?.address.as_ref()? {
        Address::SocketAddress(socket) => {
            let port = match socket.port_specifier {
                Some(PortSpecifier::PortValue(port)) => u16::try_from(port).ok()?,
                _ => 0,
            };
            let ip: Option<IpAddr> = socket.address.parse().ok();
            (
                ip.map_or_else(|| format!("{}:{port}", socket.address), |ip| SocketAddr::new(ip, port).to_string()),
                ip,
                port,
            )
        }
        Address::Pipe(pipe) => (pipe.path.clone(), None, 0),
        Address::EnvoyInternalAddress(_) => ("an internal listener".to_owned(), None, 0),
    };
    let metadata = |key: &str| endpoint.metadata.as_ref().and_then(|it| it.filter_metadata.get(key));
    let workload = metadata("istio").and_then(|it| text(it, "workload")).and_then(|it| {
        let mut parts = it.split(';');
        Some(format!("{}.{}", parts.next().filter(|name| !name.is_empty())?, parts.next()?))
    });
    Some(Candidate {
        address,
        ip,
        port,
        hostname: host.hostname.clone(),
        locality: locality.to_owned(),
        priority,
        weight: endpoint.load_balancing_weight.as_ref().map_or(1, |it| it.value),
        health: health(endpoint.health_status),
        workload,
        socket_match: metadata("envoy.transport_socket_match").cloned(),
        percent: 0.0,
    })
}

fn locality_name(locality: &Locality) -> String {
    let parts = [&locality.region, &locality.zone, &locality.sub_zone];
    parts.iter().filter(|it| !it.is_empty()).map(|it| it.as_str()).collect::<Vec<_>>().join("/")
}

/// Without active health checks, unknown is healthy.
fn health(status: i32) -> &'static str {
    match HealthStatus::try_from(status) {
        Ok(HealthStatus::Unhealthy) => "unhealthy",
        Ok(HealthStatus::Draining) => "draining",
        Ok(HealthStatus::Timeout) => "timeout",
        Ok(HealthStatus::Degraded) => "degraded",
        _ => "healthy",
    }
}

/// Sets the share of each, and returns whether unhealthy ones are used because too few are healthy (Envoy's panic mode).
fn share_out(cluster: &Cluster, assignment: Option<&ClusterLoadAssignment>, candidates: &mut [Candidate]) -> bool {
    let factor = assignment
        .and_then(|it| it.policy.as_ref()?.overprovisioning_factor.as_ref())
        .map_or(OVERPROVISIONING, |it| it.value);
    let mut priorities: Vec<u32> = candidates.iter().map(|it| it.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let known: Vec<(u32, &str)> = candidates.iter().map(|it| (it.priority, it.health)).collect();
    let counts = |priority: u32, status: &str| {
        let (mut all, mut found) = (0_u32, 0_u32);
        for (_, own) in known.iter().filter(|(own, _)| *own == priority) {
            all += 1;
            found += u32::from(*own == status);
        }
        (found, all)
    };
    let available = |priority: u32, status: &str| {
        let (found, all) = counts(priority, status);
        (f64::from(factor) * f64::from(found) / f64::from(all.max(1))).min(100.0)
    };
    let mut load = Vec::new();
    let mut left = 100.0_f64;
    for status in ["healthy", "degraded"] {
        for priority in &priorities {
            let share = available(*priority, status).min(left);
            left -= share;
            load.push((*priority, status, share));
        }
    }
    let total = 100.0 - left;
    let threshold = cluster
        .common_lb_config
        .as_ref()
        .and_then(|it| it.healthy_panic_threshold.as_ref())
        .map_or(PANIC_THRESHOLD, |it| it.value);
    let uses_weights = cluster.common_lb_config.as_ref().is_some_and(|it| {
        matches!(it.locality_config_specifier, Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(_)))
    });
    let weights = uses_weights.then_some(assignment).flatten();
    if total <= 0.0 {
        if threshold > 0.0 && !candidates.is_empty() {
            weigh(candidates, weights, 100.0, |_| true);
            return true;
        }
        return false;
    }
    let mut is_panic = false;
    for (priority, status, share) in load {
        let (healthy, all) = counts(priority, "healthy");
        let panics = total < 100.0 && 100.0 * f64::from(healthy) / f64::from(all.max(1)) < threshold;
        is_panic |= panics && share > 0.0;
        let share = share * 100.0 / total;
        weigh(candidates, weights, share, |it| it.priority == priority && (it.health == status || panics));
    }
    is_panic
}

/// Gives `share` to the endpoints that are used, by their weights, and by those of their localities where the cluster says so.
fn weigh(
    candidates: &mut [Candidate],
    localities: Option<&ClusterLoadAssignment>,
    share: f64,
    is_used: impl Fn(&Candidate) -> bool,
) {
    if share <= 0.0 {
        return;
    }
    let of_locality = |it: &Candidate| {
        let Some(assignment) = localities else { return 1.0 };
        let own = assignment.endpoints.iter().find(|locality| {
            locality.priority == it.priority
                && locality.locality.as_ref().map(locality_name).unwrap_or_default() == it.locality
        });
        own.and_then(|it| it.load_balancing_weight.as_ref()).map_or(0.0, |it| f64::from(it.value))
    };
    let inside = |candidates: &[Candidate], it: &Candidate| -> f64 {
        let own =
            candidates.iter().filter(|other| is_used(other) && (localities.is_none() || other.locality == it.locality));
        own.map(|other| f64::from(other.weight)).sum()
    };
    let parts: Vec<f64> =
        candidates
            .iter()
            .map(|it| {
                if is_used(it) { of_locality(it) * f64::from(it.weight) / inside(candidates, it).max(1.0) } else { 0.0 }
            })
            .collect();
    let total: f64 = parts.iter().sum();
    for (candidate, part) in candidates.iter_mut().zip(parts) {
        if total > 0.0 {
            candidate.percent += share * part / total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoints: &[(u32, &'static str)], threshold: f64, want: &[f64], want_panic: bool) {
        let mut candidates: Vec<Candidate> = endpoints
            .iter()
            .map(|(priority, health)| Candidate {
                address: String::new(),
                ip: None,
                port: 0,
                hostname: String::new(),
                locality: String::new(),
                priority: *priority,
                weight: 1,
                health,
                workload: None,
                socket_match: None,
                percent: 0.0,
            })
            .collect();
        let mut cluster = Cluster::default();
        cluster.common_lb_config.get_or_insert_default().healthy_panic_threshold =
            Some(wire::envoy::r#type::v3::Percent { value: threshold });
        assert_eq!(share_out(&cluster, None, &mut candidates), want_panic, "{endpoints:?}");
        let found: Vec<f64> = candidates.iter().map(|it| it.percent.round()).collect();
        assert_eq!(found, want, "{endpoints:?}");
    }

    #[test]
    fn the_next_priority_takes_what_the_first_cannot() {
        check(&[(0, "healthy"), (0, "healthy"), (1, "healthy")], 50.0, &[50.0, 50.0, 0.0], false);
        check(&[(0, "healthy"), (0, "unhealthy"), (1, "healthy")], 50.0, &[70.0, 0.0, 30.0], false);
        check(&[(0, "unhealthy"), (1, "healthy")], 50.0, &[0.0, 100.0], false);
    }

    #[test]
    fn without_healthy_endpoints_all_are_used_or_none() {
        check(&[(0, "unhealthy"), (0, "draining")], 50.0, &[50.0, 50.0], true);
        check(&[(0, "unhealthy"), (0, "draining")], 0.0, &[0.0, 0.0], false);
    }
}

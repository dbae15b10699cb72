//! TCP and TLS filter chains to one service: by tcp and tls routes of VirtualServices, else to the service itself.

use std::collections::BTreeSet;

use config::diagnostic::ObjectId;
use config::kinds::virtual_service::RouteDestination;
use config::labels::Labels;
use model::{
    Authorization, MESH, Mesh, Placement, Port, Protocol, ResolvedVirtualService, Service, VirtualServices,
    WorkloadPolicy,
};

use super::outbound_chain::Chain;
use super::tcp_destination::Sender;
use crate::filter::{self, Direction, sni_forward, tcp_proxy};
use crate::metadata;
use crate::names::ClusterName;
use crate::route::domains;
use crate::stat_pattern::{self, PatternValues};
use crate::telemetry::stats;

/// A service port as an application sees it.
pub(super) struct Target<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    pub(super) service: &'a Service,
    /// The port of the listener.
    pub(super) port: &'a Port,
    /// The service's own CIDR ranges.
    pub(super) ranges: Vec<String>,
    /// The listener's address does not identify the service: SNI must.
    pub(super) by_name: bool,
}

/// Chains in order of precedence, and the objects that they are made from.
pub(super) fn chains(target: &Target<'_>, rules: &VirtualServices) -> (Vec<Chain>, BTreeSet<ObjectId>) {
    let mut made_from = BTreeSet::new();
    let matching = rules.for_tcp(&target.service.host);
    let tls = matches!(target.port.protocol, Protocol::Tls | Protocol::Https);
    let chains = if tls { target.tls(&matching, &mut made_from) } else { target.tcp(&matching, &mut made_from) };
    made_from.extend(target.authorization().iter().flat_map(Authorization::policies).map(WorkloadPolicy::id));
    (chains, made_from)
}

impl Target<'_> {
    fn tls(&self, rules: &[&std::sync::Arc<ResolvedVirtualService>], made_from: &mut BTreeSet<ObjectId>) -> Vec<Chain> {
        let mut chains = Vec::new();
        let mut handled = BTreeSet::new();
        let mut ranges = self.ranges.clone();
        let all = rules.iter().flat_map(|object| object.tls.iter().map(move |rule| (object, rule)));
        for (object, rule) in all {
            for wanted in &rule.matches {
                if !self.fits(wanted.port, &wanted.gateways, &wanted.source_labels, &wanted.source_namespace) {
                    continue;
                }
                // As in istiod the subnets of a match also apply to the following ones.
                if !wanted.destination_subnets.is_empty() && self.port.number != 0 {
                    ranges.clone_from(&wanted.destination_subnets);
                }
                // Matches that differ only in what is known at translation time have equal chain matches: the first wins.
                if !handled.insert((&wanted.sni_hosts, &wanted.destination_subnets)) {
                    continue;
                }
                let names: Vec<_> = wanted.sni_hosts.iter().filter(|name| is_server_name(name)).cloned().collect();
                if names.is_empty() && !wanted.sni_hosts.is_empty() {
                    continue;
                }
                let Some(chain) = self.to_destinations(object, &rule.route) else { continue };
                made_from.extend(object.made_from.iter().cloned());
                chains.push(Chain { server_names: names, ranges: ranges.clone(), ..chain });
            }
        }
        if chains.is_empty() {
            chains.push(Chain { server_names: self.names(), ranges, ..self.to_service() });
        }
        chains
    }

    fn tcp(&self, rules: &[&std::sync::Arc<ResolvedVirtualService>], made_from: &mut BTreeSet<ObjectId>) -> Vec<Chain> {
        let mut chains = Vec::new();
        let all = rules.iter().flat_map(|object| object.tcp.iter().map(move |rule| (object, rule)));
        for (object, rule) in all {
            let fitting: Vec<_> = rule
                .matches
                .iter()
                .filter(|wanted| {
                    self.fits(wanted.port, &wanted.gateways, &wanted.source_labels, &wanted.source_namespace)
                })
                .collect();
            if fitting.is_empty() && !rule.matches.is_empty() {
                continue;
            }
            let Some(chain) = self.to_destinations(object, &rule.route) else { continue };
            made_from.extend(object.made_from.iter().cloned());
            let anywhere = |wanted: &&config::kinds::virtual_service::L4MatchAttributes| {
                wanted.destination_subnets.is_empty() || self.port.number == 0
            };
            if fitting.is_empty() || fitting.iter().any(anywhere) {
                chains.push(Chain { ranges: self.ranges.clone(), ..chain });
                return chains;
            }
            let subnets: Vec<_> = fitting.iter().flat_map(|wanted| wanted.destination_subnets.clone()).collect();
            let sorted = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
            let same = sorted(&subnets) == sorted(&self.ranges);
            // istiod leaves the object out of such a chain's metadata.
            chains.push(Chain { ranges: subnets, metadata: None, ..chain });
            if same {
                return chains;
            }
        }
        chains.push(Chain { ranges: self.ranges.clone(), ..self.to_service() });
        chains
    }

    fn fits(&self, port: u32, gateways: &[String], labels: &Labels, namespace: &str) -> bool {
        (port == 0 || port == u32::from(self.port.number))
            && (gateways.is_empty() || gateways.iter().any(|name| name == MESH))
            && self.placement.labels.contains_all(labels)
            && (namespace.is_empty() || *namespace == *self.placement.proxy.namespace)
    }

    /// SNI to match; empty if the address identifies the service.
    fn names(&self) -> Vec<String> {
        if !self.by_name && self.ranges.is_empty() {
            return Vec::new();
        }
        let mut names = vec![self.service.host.to_string()];
        names.extend(domains::alias_names(self.mesh, self.placement, &self.service.host));
        names
    }

    /// A listener on a port that the service does not have leads to the service's only port.
    fn to_service(&self) -> Chain {
        let service = self.service;
        let number = match service.ports.as_slice() {
            [only] => only.number,
            _ => self.port.number,
        };
        let cluster = ClusterName::outbound(number, &service.host).text();
        // istiod forgets the port's name here; pinned by parity case mesh-stat-names.
        let named = || PatternValues {
            port_name: String::new(),
            port: number,
            ..PatternValues::port(service, self.port, Some(0))
        };
        let stat = stat_pattern::expand(&self.mesh.config.outbound_cluster_stat_name, named);
        let rule = self.placement.destination_rule(&service.host).map(|rule| &**rule);
        let Self { mesh, placement, port, .. } = self;
        let mut filters = match self.authorization() {
            Some(policies) => filter::network_authorization(placement, &policies, Direction::Outbound, port.number),
            None => filter::network_plugins(placement, Direction::Outbound, port.number),
        };
        filters.extend(stats::network(placement, Direction::Outbound));
        if service.is_dynamic() {
            filters.push(sni_forward::filter(service, port.number));
        }
        filters.extend(tcp_proxy::to_destination(mesh, placement, port.protocol, &cluster, stat, rule, ""));
        Chain::tcp(filters)
    }

    /// As in istiod a connection to a host that is resolved on the way is authorized at the client, by policies for inbound traffic; pinned by
    /// parity case entries-dynamic-policies.
    fn authorization(&self) -> Option<Authorization> {
        self.service.is_dynamic().then(|| self.mesh.outbound_authorization(self.placement, self.service))
    }

    /// `None`: there is no destination.
    fn to_destinations(&self, object: &ResolvedVirtualService, routes: &[RouteDestination]) -> Option<Chain> {
        let sender = Sender { mesh: self.mesh, placement: self.placement, port: self.port };
        let filters = sender.filters(object, routes)?;
        Some(Chain { metadata: Some(metadata::config(&object.made_from[0])), ..Chain::tcp(filters) })
    }
}

/// Envoy accepts a wildcard only as the first label.
pub(super) fn is_server_name(name: &str) -> bool {
    name == "*" || (!name.is_empty() && !name.strip_prefix("*.").unwrap_or(name).contains('*'))
}

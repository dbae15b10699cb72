//! TCP and TLS passthrough of gateways: by port, by SNI, or to any service of the mesh (AUTO_PASSTHROUGH).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use model::{GatewayServer, Mesh, Placement, Port, Protocol, ResolvedVirtualService, Service, TargetPort};
use wire::envoy::config::listener::v3::Filter;

use super::chain::ISTIO;
use super::gateway::Chain;
use super::tcp_destination::Sender;
use super::tcp_route::is_server_name;
use crate::filter::{self, Direction, tcp_proxy};
use crate::names::ClusterName;
use crate::stat_pattern::{self, PatternValues};
use crate::telemetry::stats;

/// SNI names in use, by port and address: Envoy rejects a listener with a duplicate.
#[derive(Default)]
pub(super) struct ClaimedNames(BTreeMap<(u16, String), Option<String>>);

impl ClaimedNames {
    /// Claims all of the names or none.
    fn claim(&mut self, port: u16, bind: Option<&String>, names: &[String]) -> bool {
        let key = |name: &String| (port, name.clone());
        if names.iter().any(|name| self.0.get(&key(name)).is_some_and(|other| other.as_ref() == bind)) {
            return false;
        }
        self.0.extend(names.iter().map(|name| (key(name), bind.cloned())));
        true
    }
}

#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    pub(super) server: &'a GatewayServer,
}

impl Target<'_> {
    /// The first tcp route for the port, of the first VirtualService that has one.
    pub(super) fn by_port(self, made_from: &mut BTreeSet<ObjectId>) -> Option<Vec<Filter>> {
        let bound = self.bound();
        let (object, route) = bound.iter().find_map(|object| {
            let fits = |route: &&config::kinds::virtual_service::TcpRoute| {
                route.matches.is_empty() || route.matches.iter().any(|one| self.fits(one.port, &one.gateways))
            };
            Some((object, object.tcp.iter().find(fits)?))
        })?;
        let port = self.port();
        let tcp = self.sender(&port).filters(object, &route.route)?;
        made_from.extend(object.made_from.iter().cloned());
        let mut filters = if self.is_of_the_mesh() { filter::inbound_network(self.placement) } else { Vec::new() };
        filters.extend(filter::network_policies(self.placement, Direction::Outbound, port.number));
        filters.extend(tcp);
        Some(filters)
    }

    /// A filter chain for each tls route.
    pub(super) fn by_name(
        self,
        listen: u16,
        claimed: &mut ClaimedNames,
        made_from: &mut BTreeSet<ObjectId>,
    ) -> Vec<Chain> {
        let port = self.port();
        let mut chains = Vec::new();
        for object in self.bound() {
            for route in &object.tls {
                let fitting = route.matches.iter().filter(|one| self.fits(one.port, &one.gateways));
                for names in fitting.map(|one| &one.sni_hosts) {
                    if !names.iter().all(|name| is_server_name(name))
                        || !claimed.claim(listen, self.server.bind.as_ref(), names)
                    {
                        continue;
                    }
                    let Some(tcp) = self.sender(&port).filters(&object, &route.route) else { continue };
                    let mut filters = filter::network_policies(self.placement, Direction::Outbound, port.number);
                    filters.extend(tcp);
                    made_from.extend(object.made_from.iter().cloned());
                    chains.push(Chain { server_names: names.clone(), ..Chain::tcp(filters) });
                }
            }
        }
        chains
    }

    /// A filter chain for each service and subset that the server's hosts match. Only mesh mutual TLS is passed through, since nothing is
    /// inspected here.
    pub(super) fn by_service(self, made_from: &mut BTreeSet<ObjectId>) -> Vec<Chain> {
        let covered = |service: &&Arc<Service>| {
            let here = self.server.hosts.iter().any(|host| service.host.is_subset_of(&host.host));
            here && !service.external && !service.is_alias()
        };
        let mut chains = Vec::new();
        for service in self.placement.scope.services.iter().filter(covered) {
            made_from.insert(service.made_from.clone());
            for port in service.ports.iter().filter(|port| port.protocol != Protocol::Udp) {
                chains.extend(self.to_service(service, port));
            }
        }
        chains
    }

    fn to_service(self, service: &Service, port: &Port) -> Vec<Chain> {
        let Self { mesh, placement, .. } = self;
        let rule = self.placement.destination_rule(&service.host).map(|rule| &**rule);
        let subsets = rule.map(|rule| rule.subsets.as_slice()).unwrap_or_default();
        let names = std::iter::once("").chain(subsets.iter().map(|subset| subset.name.as_str()));
        names
            .map(|subset| {
                let (number, host) = (port.number, service.host.clone());
                let cluster = ClusterName::Sni { port: number, subset: subset.to_owned(), host }.text();
                let named =
                    || PatternValues { subset: subset.to_owned(), ..PatternValues::port(service, port, Some(0)) };
                let stat = stat_pattern::expand(&self.mesh.config.outbound_cluster_stat_name, named);
                let mut filters = stats::network(placement, Direction::Outbound);
                filters.extend(tcp_proxy::to_named_service(
                    mesh,
                    placement,
                    port.protocol,
                    &cluster,
                    stat,
                    rule,
                    subset,
                ));
                Chain { server_names: vec![cluster], application_protocols: &ISTIO, ..Chain::tcp(filters) }
            })
            .collect()
    }

    /// VirtualServices that share a host with the server.
    fn bound(self) -> Vec<Arc<ResolvedVirtualService>> {
        let mut all = self.mesh.gateway_routes(&self.placement.proxy.namespace, &self.server.gateway);
        all.retain(|object| {
            let own = || self.server.hosts_for(&object.namespace);
            object.hosts.iter().any(|host| own().any(|server| server.matches(host)))
        });
        all
    }

    fn fits(self, port: u32, gateways: &[String]) -> bool {
        (port == 0 || port == u32::from(self.server.port.number))
            && (gateways.is_empty() || gateways.iter().any(|name| **name == *self.server.gateway))
    }

    fn is_of_the_mesh(self) -> bool {
        let mode = self.server.tls.as_ref().map(|tls| tls.mode);
        mode == Some(config::kinds::gateway::ServerTlsMode::IstioMutual)
    }

    /// The declared port: routes without a port lead to the number that clients know.
    fn port(self) -> Port {
        let declared = &self.server.port;
        Port {
            name: declared.name.clone(),
            number: declared.number,
            protocol: declared.protocol,
            target: TargetPort::Same,
        }
    }

    fn sender<'b>(&'b self, port: &'b Port) -> Sender<'b> {
        Sender { mesh: self.mesh, placement: self.placement, port }
    }
}

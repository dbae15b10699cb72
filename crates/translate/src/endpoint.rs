//! Load assignments: the endpoints of a service port or subset, by locality and priority. How they are written is in `bytes`.

mod bytes;
mod network;

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::kinds::client_tls::ClientTlsMode;
use config::labels::Labels;
use config::locality::Locality as Place;
use model::{Address, Destination, Doors, Endpoint, Health, Locality, Mesh, MtlsMode, Placement, Port, Service};
use prost::{Message, Name};
use wire::any;
use wire::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use wire::google::protobuf::Any;

use self::bytes::Assignment;
use crate::locality::{self, Client, Group, Member};
use crate::made::Made;
use crate::names::ClusterName;

/// `None`: the proxy imports no such service port; answer with an empty assignment so that the cluster does not wait.
pub fn assignment(mesh: &Mesh, placement: &Placement, name: &ClusterName) -> Option<Made<Any>> {
    let (port, subset, host, through) = match name {
        ClusterName::Outbound { port, subset, host } => (port, subset, host, false),
        ClusterName::Sni { port, subset, host } => (port, subset, host, true),
        ClusterName::Inbound { .. } => return None,
    };
    let service = placement.scope.service(host)?;
    let port = service.port(*port)?;
    let rule = placement.destination(host).map(|rule| &**rule);
    let chosen = Chosen { mesh, placement, service, port, rule, subset };
    let groups = match (service.is_resolved_by_name(), through) {
        (true, _) => Vec::new(),
        (false, true) => chosen.mutual_groups(|endpoint| !is_named(endpoint)),
        (false, false) => chosen.groups(|endpoint| !is_named(endpoint)),
    };
    let assignment = Assignment { name: &name.text(), chosen, groups: &groups };
    let rules = rule.into_iter().flat_map(|rule| rule.made_from.iter().cloned());
    let any = Any { type_url: ClusterLoadAssignment::type_url(), value: assignment.bytes() };
    Some(Made::new(any, rules.chain([service.made_from.clone()])))
}

pub fn empty_assignment(name: &str) -> Any {
    any::pack(&ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() })
}

/// The endpoints that one client uses of a service port.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) placement: &'a Placement,
    pub(crate) service: &'a Service,
    pub(crate) port: &'a Port,
    pub(crate) rule: Option<&'a Destination>,
    /// Empty: the whole service. One that the rule does not have chooses everything.
    pub(crate) subset: &'a str,
}

impl<'a> Chosen<'a> {
    /// For clusters that hold their endpoints themselves. `mutual`: those alone that are known to take mutual TLS.
    pub(crate) fn localities(self, mutual: bool) -> Vec<LocalityLbEndpoints> {
        let groups = if mutual { self.mutual_groups(|_| true) } else { self.groups(|_| true) };
        let bytes = Assignment { name: "", chosen: self, groups: &groups }.bytes();
        ClusterLoadAssignment::decode(bytes).expect("it is written as Envoy's fields are").endpoints
    }

    fn groups(self, keep: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        self.of_groups(keep, |_| true)
    }

    /// A place of others stays, empty.
    fn mutual_groups(self, keep: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        self.of_groups(keep, |endpoint| self.takes_mtls(endpoint))
    }

    /// `keep`: endpoints that count at all; `sent`: those among them that are sent.
    fn of_groups(self, keep: impl Fn(&Endpoint) -> bool, sent: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        if !self.placement.is_at_home(self.mesh) && self.mesh.stays_at_home(&self.service.host) {
            return Vec::new();
        }
        // As in istiod a place is its text: a machine's "r/z" is apart from a pod's "r/z/".
        let mut by_place: BTreeMap<(&Place, usize), Vec<&'a Endpoint>> = BTreeMap::new();
        for endpoint in self.all() {
            if self.is_usable(endpoint) && keep(endpoint) {
                let workload = &endpoint.workload;
                by_place.entry((&workload.locality, workload.place_parts)).or_default().push(endpoint);
            }
        }
        let groups = by_place.into_iter().map(|((place, _), mut members)| {
            members.retain(|endpoint| sent(endpoint));
            Group::new(place, self.members(&members))
        });
        let groups = groups.collect();
        self.arranged(groups)
    }

    /// Clusters that hold their endpoints themselves have those of the port's number, others those of its name.
    fn all(self) -> Vec<&'a Endpoint> {
        if self.service.is_resolved_by_name() {
            return self.mesh.endpoints_at(self.service, self.port.number);
        }
        self.mesh.endpoints(self.service).port(&self.port.name).iter().collect()
    }

    /// Endpoints of one place as this client reaches them: themselves, or the gateways of their networks.
    fn members(self, endpoints: &[&'a Endpoint]) -> Vec<Member<'a>> {
        if self.doors().are_there() {
            network::members(self, endpoints)
        } else {
            endpoints.iter().map(|endpoint| Member::itself(endpoint, 1)).collect()
        }
    }

    fn arranged<'g>(self, groups: Vec<Group<'g>>) -> Vec<Group<'g>> {
        let policy = self.rule.and_then(|rule| rule.effective(self.subset, self.port.number));
        let config = &self.mesh.config;
        match Locality::of(policy.as_ref(), self.service, config) {
            Locality::Off => groups,
            Locality::Zones(setting) if setting.enabled == Some(false) => groups,
            Locality::Zones(setting) => locality::by_region(groups, &self.placement.locality, &setting.failover),
            Locality::Setting { setting, forced } => {
                let client = Client {
                    locality: &self.placement.locality,
                    labels: &self.placement.placed_labels,
                    cluster: &self.mesh.env.cluster_id,
                };
                let fails_over = forced || model::outlier_detection(policy.as_ref(), config).is_some();
                locality::arranged(groups, &client, &setting, fails_over)
            }
        }
    }

    fn is_usable(self, endpoint: &Endpoint) -> bool {
        let healthy = match endpoint.health {
            Health::Ready => true,
            Health::NotReady => self.service.sends_unready(),
            Health::Terminating => false,
            Health::Draining => self.service.keeps_cookies(),
        };
        let here = !self.service.node_local || self.placement.node(self.mesh) == Some(&endpoint.workload.node);
        let visible = self.placement.views_network(&endpoint.network);
        healthy && here && visible && self.is_reachable(endpoint) && self.is_selected(endpoint)
    }

    /// What has no address needs a gateway.
    fn is_reachable(self, endpoint: &Endpoint) -> bool {
        endpoint.address != Address::Unknown || self.doors().are_there()
    }

    /// Names of gateways are for clusters that ask DNS themselves.
    fn doors(self) -> &'a Doors {
        let networks = &self.mesh.networks;
        if self.service.is_resolved_by_name() { &networks.named_doors } else { &networks.doors }
    }

    /// A proxy of one address family cannot dial the other.
    fn dials(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.placement.has_ipv4() } else { self.placement.has_ipv6() }
    }

    fn is_selected(self, endpoint: &Endpoint) -> bool {
        let Some(wanted) = self.subset_labels() else { return true };
        let workload = &endpoint.workload;
        workload.labels.contains_all(wanted) || endpoint.placed_labels(&self.mesh.env.cluster_id).contains_all(wanted)
    }

    fn subset_labels(self) -> Option<&'a Labels> {
        self.rule?.subset(self.subset).map(|subset| &subset.labels)
    }

    /// It must be able to. Then a rule's word on TLS counts, else a workload or port may decline.
    pub(crate) fn takes_mtls(self, endpoint: &Endpoint) -> bool {
        let ruled = || self.rule.and_then(|rule| rule.endpoint_tls(self.subset, self.port.number));
        let modes = || self.mesh.port_modes(&self.service.namespace, &endpoint.workload.labels);
        endpoint.workload.mtls
            && match ruled() {
                Some(mode) => mode == ClientTlsMode::IstioMutual,
                None => modes().of(endpoint.port) != MtlsMode::Disable,
            }
    }
}

/// Only DNS can say where it is.
fn is_named(endpoint: &Endpoint) -> bool {
    matches!(endpoint.address, Address::Name(_))
}

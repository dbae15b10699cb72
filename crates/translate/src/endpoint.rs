//! Load assignments (EDS): the endpoints of a service port or subset, by locality and priority. Their encoding is in `encoding`.

mod encoding;
mod network;

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::kinds::client_tls::ClientTlsMode;
use config::labels::Labels;
use config::locality::Locality as LocalityName;
use model::{
    Endpoint, EndpointAddress, Health, LocalityPreference, MergedDestinationRule, Mesh, MtlsMode, NetworkGateways,
    Placement, Port, Service, TlsMode,
};
use prost::{Message, Name};
use wire::any;
use wire::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use wire::google::protobuf::Any;

use self::encoding::AssignmentMessage;
use crate::locality::{self, Client, Group, Member};
use crate::names::ClusterName;
use crate::translated::Translated;

/// `None`: the proxy imports no such service port. The caller answers with an empty assignment, so that the cluster does not keep warming.
pub fn assignment(mesh: &Mesh, placement: &Placement, name: &ClusterName) -> Option<Translated<Any>> {
    let (port, subset, host, through) = match name {
        ClusterName::Outbound { port, subset, host } => (port, subset, host, false),
        ClusterName::Sni { port, subset, host } => (port, subset, host, true),
        ClusterName::Inbound { .. } => return None,
    };
    let service = placement.scope.service(host)?;
    let port = service.port(*port)?;
    let rule = placement.destination_rule(host).map(|rule| &**rule);
    let selection = EndpointSelection { mesh, placement, service, port, rule, subset };
    let groups = match (service.is_resolved_by_name(), through) {
        (true, _) => Vec::new(),
        (false, true) => selection.mutual_groups(|endpoint| !is_hostname(endpoint)),
        (false, false) => selection.groups(|endpoint| !is_hostname(endpoint)),
    };
    let assignment = AssignmentMessage { name: &name.text(), selection, groups: &groups };
    let rules = rule.into_iter().flat_map(|rule| rule.made_from.iter().cloned());
    let any = Any { type_url: ClusterLoadAssignment::type_url(), value: assignment.bytes() };
    Some(Translated::new(any, rules.chain([service.made_from.clone()])))
}

pub fn empty_assignment(name: &str) -> Any {
    any::pack(&ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() })
}

/// Selects the endpoints of a service port for one client.
#[derive(Clone, Copy)]
pub(crate) struct EndpointSelection<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) placement: &'a Placement,
    pub(crate) service: &'a Service,
    pub(crate) port: &'a Port,
    pub(crate) rule: Option<&'a MergedDestinationRule>,
    /// Empty: the whole service. An unknown subset selects every endpoint.
    pub(crate) subset: &'a str,
}

impl<'a> EndpointSelection<'a> {
    /// For clusters that embed their endpoints. `mutual`: only endpoints that accept mutual TLS.
    pub(crate) fn localities(self, mutual: bool) -> Vec<LocalityLbEndpoints> {
        let groups = if mutual { self.mutual_groups(|_| true) } else { self.groups(|_| true) };
        let bytes = AssignmentMessage { name: "", selection: self, groups: &groups }.bytes();
        ClusterLoadAssignment::decode(bytes).expect("it is written as Envoy's fields are").endpoints
    }

    fn groups(self, keep: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        self.group_by_locality(keep, |_| true)
    }

    /// A locality whose endpoints do not accept mutual TLS stays, without endpoints.
    fn mutual_groups(self, keep: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        self.group_by_locality(keep, |endpoint| self.accepts_mtls(endpoint))
    }

    /// `keep`: endpoints that create a locality; `sent`: those among them that are sent.
    fn group_by_locality(self, keep: impl Fn(&Endpoint) -> bool, sent: impl Fn(&Endpoint) -> bool) -> Vec<Group<'a>> {
        if !self.placement.is_in_own_cluster(self.mesh) && self.mesh.is_cluster_local(&self.service.host) {
            return Vec::new();
        }
        // As in istiod a locality is its text: "r/z" of a WorkloadEntry differs from "r/z/" of a pod.
        let mut by_locality: BTreeMap<(&LocalityName, usize), Vec<&'a Endpoint>> = BTreeMap::new();
        for endpoint in self.all() {
            if self.is_usable(endpoint) && keep(endpoint) {
                let workload = &endpoint.workload;
                by_locality.entry((&workload.locality, workload.locality_parts)).or_default().push(endpoint);
            }
        }
        let groups = by_locality.into_iter().map(|((locality, _), mut members)| {
            members.retain(|endpoint| sent(endpoint));
            Group::new(locality, self.members(&members))
        });
        let groups = groups.collect();
        self.arrange(groups)
    }

    /// Clusters that embed their endpoints select by port number, others by port name.
    fn all(self) -> Vec<&'a Endpoint> {
        if self.service.is_resolved_by_name() {
            return self.mesh.endpoints_at(self.service, self.port.number);
        }
        self.mesh.endpoints(self.service).port(&self.port.name).iter().collect()
    }

    /// The endpoints of one locality as this client reaches them: directly, or through the gateways of their networks.
    fn members(self, endpoints: &[&'a Endpoint]) -> Vec<Member<'a>> {
        if self.network_gateways().has_any() {
            network::members(self, endpoints)
        } else {
            endpoints.iter().map(|endpoint| Member::direct(endpoint, 1)).collect()
        }
    }

    fn arrange<'g>(self, groups: Vec<Group<'g>>) -> Vec<Group<'g>> {
        let policy = self.rule.and_then(|rule| rule.effective(self.subset, self.port.number));
        let config = &self.mesh.config;
        match LocalityPreference::of(policy.as_ref(), self.service, config) {
            LocalityPreference::Off => groups,
            LocalityPreference::Zones(setting) if setting.enabled == Some(false) => groups,
            LocalityPreference::Zones(setting) => {
                locality::by_region(groups, &self.placement.locality, &setting.failover)
            }
            LocalityPreference::Setting { setting, forced } => {
                let client = Client {
                    locality: &self.placement.locality,
                    labels: &self.placement.topology_labels,
                    cluster: &self.mesh.env.cluster_id,
                };
                let fails_over = forced || model::outlier_detection(policy.as_ref(), config).is_some();
                locality::arrange(groups, &client, &setting, fails_over)
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
        let visible = self.placement.requests_network(&endpoint.network);
        healthy && here && visible && self.is_reachable(endpoint) && self.is_selected(endpoint)
    }

    /// An endpoint without an address is reachable through a network gateway only.
    fn is_reachable(self, endpoint: &Endpoint) -> bool {
        endpoint.address != EndpointAddress::Unknown || self.network_gateways().has_any()
    }

    /// Gateways with host names are for DNS clusters only.
    fn network_gateways(self) -> &'a NetworkGateways {
        let networks = &self.mesh.networks;
        if self.service.is_resolved_by_name() { &networks.gateways_with_hostnames } else { &networks.gateways }
    }

    /// A single-stack proxy cannot connect to the other address family.
    fn can_reach(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.placement.has_ipv4() } else { self.placement.has_ipv6() }
    }

    fn is_selected(self, endpoint: &Endpoint) -> bool {
        let Some(wanted) = self.subset_labels() else { return true };
        let workload = &endpoint.workload;
        workload.labels.contains_all(wanted) || endpoint.topology_labels(&self.mesh.env.cluster_id).contains_all(wanted)
    }

    fn subset_labels(self) -> Option<&'a Labels> {
        self.rule?.subset(self.subset).map(|subset| &subset.labels)
    }

    pub(crate) fn accepts_mtls(self, endpoint: &Endpoint) -> bool {
        endpoint.workload.tls_mode == TlsMode::Istio && self.tls_label(endpoint).is_some()
    }

    /// The label by which the cluster chooses the endpoint's transport; `None`: plaintext. The rule's TLS mode decides whether it is sent, else the
    /// sidecar and the PeerAuthentication mode of workload or port.
    fn tls_label(self, endpoint: &Endpoint) -> Option<&str> {
        let mode = &endpoint.workload.tls_mode;
        let label = mode.endpoint_label()?;
        let modes = || self.mesh.port_modes(&self.service.namespace, &endpoint.workload.labels);
        let sent = match self.rule.and_then(|rule| rule.endpoint_tls(self.subset, self.port.number)) {
            Some(ruled) => ruled == ClientTlsMode::IstioMutual,
            None => *mode == TlsMode::Istio && modes().of(endpoint.port) != MtlsMode::Disable,
        };
        sent.then_some(label)
    }
}

/// Its address is a host name, to be resolved by DNS.
fn is_hostname(endpoint: &Endpoint) -> bool {
    matches!(endpoint.address, EndpointAddress::Name(_))
}

//! A client at one of its ports: what routes read of it, and the objects that they turned out to be made from. A router is the client of
//! what its Gateways expose.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::kinds::virtual_service::{Destination, HttpMatchRequest};
use config::note::ObjectId;
use model::{MESH, Mesh, Placement, Resolution, Service, destination_port};

use crate::names::ClusterName;

pub(super) struct Client<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    /// 0: a listener for services of any port.
    pub(super) port: u16,
    /// Those with this port, by host.
    pub(super) services: BTreeMap<&'a Host, &'a Arc<Service>>,
    /// Those of them that stand for many hosts.
    pub(super) wild: Vec<&'a Host>,
    /// `None`: a sidecar.
    entrance: Option<Entrance<'a>>,
    made_from: RefCell<BTreeSet<ObjectId>>,
}

/// Where requests come into the mesh.
#[derive(Clone, Copy)]
pub(super) struct Entrance<'a> {
    /// `namespace/name` of the Gateway.
    pub(super) gateway: &'a str,
    /// Of the VirtualService: its names mean services there first.
    pub(super) namespace: &'a str,
    pub(super) tls: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(mesh: &'a Mesh, placement: &'a Placement, port: u16, services: &'a [Arc<Service>]) -> Self {
        let here = services.iter().filter(|service| port == 0 || service.port(port).is_some());
        // Of several with one host the last stays, as in istiod.
        let services: BTreeMap<_, _> = here.map(|service| (&service.host, service)).collect();
        Self {
            mesh,
            placement,
            port,
            wild: services.keys().copied().filter(|host| host.is_wildcard()).collect(),
            services,
            entrance: None,
            made_from: RefCell::default(),
        }
    }

    /// A router, for one VirtualService that is bound to one of its Gateways.
    pub(super) fn of_gateway(mesh: &'a Mesh, placement: &'a Placement, port: u16, entrance: Entrance<'a>) -> Self {
        let (services, wild, made_from) = (BTreeMap::new(), Vec::new(), RefCell::default());
        Self { mesh, placement, port, services, wild, entrance: Some(entrance), made_from }
    }

    pub(super) fn used(&self, ids: impl IntoIterator<Item = ObjectId>) {
        self.made_from.borrow_mut().extend(ids);
    }

    pub(super) fn made_from(self) -> BTreeSet<ObjectId> {
        self.made_from.into_inner()
    }

    /// A match that lists gateways asks for nothing else of the client.
    pub(super) fn fits(&self, wanted: &HttpMatchRequest) -> bool {
        if wanted.port != 0 && wanted.port != u32::from(self.port) {
            return false;
        }
        if !wanted.gateways.is_empty() {
            let own = self.entrance.map_or(MESH, |entrance| entrance.gateway);
            return wanted.gateways.iter().any(|name| name == own);
        }
        self.placement.labels.contains_all(&wanted.source_labels)
            && (wanted.source_namespace.is_empty() || *wanted.source_namespace == *self.placement.proxy.namespace)
    }

    /// A port that is not named is the listener's, or the only one of a service.
    pub(super) fn cluster(&self, to: &Destination) -> ClusterName {
        let host = Host::new(&to.host);
        let service = self.service(&host);
        // A sidecar without a port of its own, and a router, whose port has nothing to do with the service's.
        let free = self.port == 0 || self.entrance.is_some();
        let only = || match service.map(|service| service.ports.as_slice()) {
            Some([only]) if free => only.number,
            _ => self.port,
        };
        let port = destination_port(to).unwrap_or_else(only);
        let host = match service.map(|service| &service.resolution) {
            Some(Resolution::Alias(other)) => other.clone(),
            _ => host,
        };
        ClusterName::Outbound { port, subset: to.subset.clone(), host }
    }

    /// How requests came, where a redirect does not say otherwise.
    pub(super) fn scheme(&self) -> &'static str {
        if self.entrance.is_some_and(|entrance| entrance.tls) { "https" } else { "http" }
    }

    fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        match self.entrance {
            Some(entrance) => self.mesh.routed_service(self.placement, entrance.namespace, host),
            None => self.services.get(host).copied(),
        }
    }
}

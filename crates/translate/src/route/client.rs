//! The client of a route configuration, at one of its ports: what routes read of it, and the objects that they used. A gateway is the
//! client of the services that it exposes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kinds::virtual_service::{Destination, HttpMatchRequest};
use model::{MESH, Mesh, Placement, Resolution, Service, destination_port};

use crate::names::ClusterName;

pub(super) struct Client<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    /// 0: a listener for services of any port.
    pub(super) port: u16,
    /// Services with this port, by host.
    pub(super) services: BTreeMap<&'a Host, &'a Arc<Service>>,
    /// Those of them with a wildcard host.
    pub(super) wild: Vec<&'a Host>,
    /// `None`: a sidecar.
    gateway_binding: Option<GatewayBinding<'a>>,
    made_from: RefCell<BTreeSet<ObjectId>>,
}

/// The Gateway through which requests enter the mesh.
#[derive(Clone, Copy)]
pub(super) struct GatewayBinding<'a> {
    /// `namespace/name` of the Gateway.
    pub(super) gateway: &'a str,
    /// Of the VirtualService: short host names resolve there first.
    pub(super) namespace: &'a str,
    pub(super) tls: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(mesh: &'a Mesh, placement: &'a Placement, port: u16, services: &'a [Arc<Service>]) -> Self {
        let here = services.iter().filter(|service| port == 0 || service.port(port).is_some());
        // As in istiod the last of several services with one host wins.
        let services: BTreeMap<_, _> = here.map(|service| (&service.host, service)).collect();
        Self {
            mesh,
            placement,
            port,
            wild: services.keys().copied().filter(|host| host.is_wildcard()).collect(),
            services,
            gateway_binding: None,
            made_from: RefCell::default(),
        }
    }

    /// A gateway, for one VirtualService that is bound to one of its Gateways.
    pub(super) fn of_gateway(
        mesh: &'a Mesh,
        placement: &'a Placement,
        port: u16,
        gateway_binding: GatewayBinding<'a>,
    ) -> Self {
        let (services, wild, made_from) = (BTreeMap::new(), Vec::new(), RefCell::default());
        Self { mesh, placement, port, services, wild, gateway_binding: Some(gateway_binding), made_from }
    }

    pub(super) fn record_use(&self, ids: impl IntoIterator<Item = ObjectId>) {
        self.made_from.borrow_mut().extend(ids);
    }

    pub(super) fn made_from(self) -> BTreeSet<ObjectId> {
        self.made_from.into_inner()
    }

    /// A match with `gateways` ignores the source labels and namespace.
    pub(super) fn matches(&self, wanted: &HttpMatchRequest) -> bool {
        if wanted.port != 0 && wanted.port != u32::from(self.port) {
            return false;
        }
        if !wanted.gateways.is_empty() {
            let own = self.gateway_binding.map_or(MESH, |gateway_binding| gateway_binding.gateway);
            return wanted.gateways.iter().any(|name| name == own);
        }
        self.placement.labels.contains_all(&wanted.source_labels)
            && (wanted.source_namespace.is_empty() || *wanted.source_namespace == *self.placement.proxy.namespace)
    }

    /// A destination without a port means the listener's port, or the service's only one.
    pub(super) fn cluster(&self, to: &Destination) -> ClusterName {
        let host = Host::new(&to.host);
        let service = self.service(&host);
        // A listener of all ports, or a gateway, whose port is unrelated to the service's.
        let free = self.port == 0 || self.gateway_binding.is_some();
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

    /// The scheme of requests, if a redirect does not set it.
    pub(super) fn scheme(&self) -> &'static str {
        if self.gateway_binding.is_some_and(|gateway_binding| gateway_binding.tls) { "https" } else { "http" }
    }

    fn service(&self, host: &Host) -> Option<&Arc<Service>> {
        match self.gateway_binding {
            Some(gateway_binding) => self.mesh.routed_service(self.placement, gateway_binding.namespace, host),
            None => self.services.get(host).copied(),
        }
    }
}

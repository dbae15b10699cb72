//! Ports that a sidecar cannot listen on: those of its own listeners, and privileged ones if the pod is unprivileged. Not for gateways.

use model::{Mesh, Placement, Protocol};

/// The first unprivileged port.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// A listener to be created.
#[derive(Clone, Copy)]
pub(super) struct ListenerRequest<'a> {
    /// `None`: the address follows from the service, and is the wildcard for HTTP.
    pub(super) bind: Option<&'a str>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// It binds the port, instead of receiving connections from a virtual listener.
    pub(super) bound: bool,
}

impl ListenerRequest<'_> {
    pub(super) fn is_reserved(self, placement: &Placement) -> bool {
        let low = (1..FIRST_UNPRIVILEGED).contains(&self.port);
        let reserved = placement.proxy.metadata.reserved_ports.contains(&self.port);
        (self.bound && low && placement.proxy.metadata.unprivileged) || (reserved && self.is_wildcard(placement))
    }

    /// As `is_reserved`, and also for the ports of the virtual listeners.
    pub(super) fn is_reserved_beside_virtual(self, mesh: &Mesh, placement: &Placement) -> bool {
        let own = [mesh.outbound_port(), mesh.inbound_port()];
        self.is_reserved(placement) || (own.contains(&self.port) && self.is_wildcard(placement))
    }

    fn is_wildcard(self, placement: &Placement) -> bool {
        self.bind.map_or(self.protocol.is_http(), |bind| bind == placement.wildcard())
    }
}

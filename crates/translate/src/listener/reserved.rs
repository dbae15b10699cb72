//! Ports that a sidecar cannot listen on: those of its own listeners, and low ones where it has no privileges. Not those of gateways.

use model::{Mesh, Placement, Protocol};

/// The first port that anybody may open.
const UNPRIVILEGED: u16 = 1024;

/// Somebody wants to listen there.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// `None`: the address follows from the service, and is any address for HTTP.
    pub(super) bind: Option<&'a str>,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// A real port, not one that only a virtual listener hands over to.
    pub(super) bound: bool,
}

impl Wanted<'_> {
    pub(super) fn is_refused(self, placement: &Placement) -> bool {
        let low = (1..UNPRIVILEGED).contains(&self.port);
        let held = placement.proxy.metadata.reserved_ports.contains(&self.port);
        (self.bound && low && placement.proxy.metadata.unprivileged) || (held && self.is_anywhere(placement))
    }

    /// Of a listener that the virtual ones would be in the way of, too.
    pub(super) fn is_refused_beside_virtual(self, mesh: &Mesh, placement: &Placement) -> bool {
        let own = [mesh.outbound_port(), mesh.inbound_port()];
        self.is_refused(placement) || (own.contains(&self.port) && self.is_anywhere(placement))
    }

    fn is_anywhere(self, placement: &Placement) -> bool {
        self.bind.map_or(self.protocol.is_http(), |bind| bind == placement.wildcard())
    }
}

//! Listeners: outbound ones by address and port, the virtual ones that catch redirected traffic, and inbound ones on real ports.

mod balance;
mod chain;
mod inbound;
mod inspector;
mod outbound;
pub(crate) mod source;
mod virtual_inbound;
mod virtual_outbound;

use model::{Mesh, Placement};
use wire::envoy::config::listener::v3::Listener;

use crate::made::Made;

/// All listeners of a proxy. A router has those that Gateways ask for, and without any none.
pub fn listeners(mesh: &Mesh, placement: &Placement) -> Vec<Made<Listener>> {
    if placement.is_router() {
        return Vec::new();
    }
    let mut out = outbound::listeners(mesh, placement);
    if !placement.binds_ports() {
        out.push(Made::built_in(virtual_outbound::listener(mesh, placement)));
        out.push(virtual_inbound::listener(mesh, placement));
    }
    out.extend(inbound::bound_listeners(mesh, placement));
    out
}

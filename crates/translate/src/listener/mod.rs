//! Listeners: outbound ones by address and port, the virtual ones that catch redirected traffic, inbound ones on real ports, and those of
//! routers.

mod balance;
mod bytes_destination;
mod bytes_route;
mod chain;
mod gateway;
mod gateway_bytes;
mod gateway_tls;
mod inbound;
mod inspector;
mod outbound;
mod outbound_chain;
pub(crate) mod source;
mod virtual_inbound;
mod virtual_outbound;

use model::{Mesh, Placement};
use wire::envoy::config::listener::v3::Listener;

pub use self::outbound::HttpListeners;
use crate::made::Made;

/// What a sidecar listens on towards others. A router listens where Gateways ask for it, and without any nowhere.
#[derive(Default)]
pub struct OutboundListeners {
    /// They name the workload in traces; the rest do not know it.
    pub http: HttpListeners,
    pub rest: Vec<Made<Listener>>,
}

pub fn outbound_listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    if placement.is_router() {
        return gateway::listeners(mesh, placement);
    }
    let mut out = outbound::listeners(mesh, placement);
    if !placement.binds_ports() {
        let observed = placement.telemetry.made_from.iter().cloned();
        out.rest.push(Made::new(virtual_outbound::listener(mesh, placement), observed));
    }
    out
}

/// What arrives at the proxy's own application.
pub fn inbound_listeners(mesh: &Mesh, placement: &Placement) -> Vec<Made<Listener>> {
    if placement.is_router() {
        return Vec::new();
    }
    let mut out = inbound::bound_listeners(mesh, placement);
    if !placement.binds_ports() {
        out.push(virtual_inbound::listener(mesh, placement));
    }
    out
}

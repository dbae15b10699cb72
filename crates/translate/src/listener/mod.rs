//! Listeners: outbound ones by address and port, the virtual ones that catch redirected traffic, inbound ones on real ports, and those of
//! routers.

mod balance;
mod bytes_destination;
mod bytes_route;
mod cast;
mod chain;
mod gateway;
mod gateway_bytes;
mod gateway_tls;
mod inbound;
mod inbound_mould;
mod inspector;
mod mould;
mod outbound;
mod outbound_chain;
mod reserved;
pub(crate) mod source;
mod virtual_inbound;
mod virtual_outbound;

use model::{Mesh, PatchSet, Placement};
use wire::envoy::config::listener::v3::Listener;

pub use self::cast::Cast;
pub use self::inbound_mould::{InboundMould, InboundPorts};
pub use self::outbound::HttpListeners;
use crate::made::Made;
use crate::patch;

/// What a sidecar listens on towards others. A router listens where Gateways ask for it, and without any nowhere.
#[derive(Default)]
pub struct OutboundListeners {
    /// They name the workload in traces; the rest do not know it.
    pub http: HttpListeners,
    pub rest: Vec<Made<Listener>>,
}

pub fn outbound_listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut out = match placement.is_router() {
        true => gateway::listeners(mesh, placement),
        false => outbound::listeners(mesh, placement),
    };
    if !placement.is_router() && !placement.binds_ports() {
        let observed = placement.telemetry.made_from.iter().cloned();
        out.rest.push(Made::new(virtual_outbound::listener(mesh, placement), observed));
    }
    let set = &placement.patches.outbound;
    out.rest = patched(set, out.rest);
    let own = out.http.names().chain(out.rest.iter().map(|made| made.value.name.clone()));
    let taken = own.chain([virtual_inbound::NAME.to_owned()]).collect();
    out.rest.extend(patch::added_listeners(set, &taken));
    out
}

fn patched(set: &PatchSet, listeners: Vec<Made<Listener>>) -> Vec<Made<Listener>> {
    listeners.into_iter().filter_map(|made| patch::patched_listener(set, made)).collect()
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
    let routed = out.into_iter().map(|made| patch::inbound_routes(placement, made)).collect();
    patched(&placement.patches.inbound, routed)
}

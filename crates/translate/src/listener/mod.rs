//! Listeners (LDS): outbound ones by address and port, the virtual ones for redirected traffic, inbound ones that bind a port, and those of
//! gateways.

mod balance;
mod chain;
mod gateway;
mod gateway_tcp;
mod gateway_tls;
mod inbound;
mod inbound_template;
mod inspector;
mod outbound;
mod outbound_chain;
mod reserved;
pub(crate) mod source;
mod tcp_destination;
mod tcp_route;
mod template;
mod template_instance;
mod virtual_inbound;
mod virtual_outbound;

use model::{Mesh, PatchSet, Placement};
use wire::envoy::config::listener::v3::Listener;

pub use self::inbound_template::{InboundListenerTemplate, InboundPorts};
pub use self::outbound::HttpListeners;
pub use self::template_instance::TemplateInstance;
use crate::patch;
use crate::translated::Translated;

/// The outbound listeners of a sidecar, or the listeners of a gateway's servers.
#[derive(Default)]
pub struct OutboundListeners {
    /// They name the workload in traces; `rest` does not.
    pub http: HttpListeners,
    pub rest: Vec<Translated<Listener>>,
}

pub fn outbound_listeners(mesh: &Mesh, placement: &Placement) -> OutboundListeners {
    let mut out = match placement.is_gateway() {
        true => gateway::listeners(mesh, placement),
        false => outbound::listeners(mesh, placement),
    };
    if !placement.is_gateway() && !placement.binds_ports() {
        let observed = placement.telemetry.made_from.iter().cloned();
        out.rest.push(Translated::new(virtual_outbound::listener(mesh, placement), observed));
    }
    let set = &placement.patches.outbound;
    out.rest = apply_patches(set, out.rest);
    let own = out.http.names().chain(out.rest.iter().map(|made| made.value.name.clone()));
    let taken = own.chain([virtual_inbound::NAME.to_owned()]).collect();
    out.rest.extend(patch::new_listeners(set, &taken));
    out
}

fn apply_patches(set: &PatchSet, listeners: Vec<Translated<Listener>>) -> Vec<Translated<Listener>> {
    listeners.into_iter().filter_map(|made| patch::patch_listener(set, made)).collect()
}

/// The inbound listeners.
pub fn inbound_listeners(mesh: &Mesh, placement: &Placement) -> Vec<Translated<Listener>> {
    if placement.is_gateway() {
        return Vec::new();
    }
    let mut out = inbound::bound_listeners(mesh, placement);
    if !placement.binds_ports() {
        out.push(virtual_inbound::listener(mesh, placement));
    }
    let routed = out.into_iter().map(|made| patch::inbound_routes(placement, made)).collect();
    apply_patches(&placement.patches.inbound, routed)
}

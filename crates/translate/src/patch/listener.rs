//! Patches of listeners, and of what they are made of: their own filters here, chains and filters of chains in `chain`, `network`, `http`.

use std::collections::BTreeSet;

use config::kinds::envoy_filter::{ApplyTo, FilterChainMatch, ListenerMatch, MatchedObject, Operation};
use model::{Patch, PatchSet, Placement};
use wire::envoy::config::core::v3::address::Address;
use wire::envoy::config::core::v3::socket_address::PortSpecifier;
use wire::envoy::config::listener::v3::{Listener, ListenerFilter, listener_filter::ConfigType};

use super::{Applied, OF_LISTENERS, OF_ROUTES, any, chain, http, list, value};
use crate::made::Made;

/// `None`: it is removed.
pub(crate) fn patched(set: &PatchSet, made: Made<Listener>) -> Option<Made<Listener>> {
    if !set.has(OF_LISTENERS) {
        return Some(made);
    }
    let mut made = made;
    let mut applied = Applied::default();
    for patch in set.of(ApplyTo::Listener) {
        match patch.operation {
            _ if !matches(patch, &made.value) => {}
            Operation::Remove => return None,
            Operation::Merge => applied.note_if(value::merge(&mut made.value, patch), patch),
            _ => {}
        }
    }
    filters(set, &mut made.value, &mut applied);
    chain::patch(set, &mut made.value, &mut applied);
    made.patched.extend(applied.0);
    Some(made)
}

/// Listeners that patches add, unless their name is taken. No other patch sees them.
pub(crate) fn added(set: &PatchSet, taken: &BTreeSet<String>) -> Vec<Made<Listener>> {
    let mut names = taken.clone();
    let added = set.of(ApplyTo::Listener).iter().filter(|patch| patch.operation == Operation::Add);
    let made = added.filter_map(|patch| Some(Made::added(value::message::<Listener>(patch)?, patch)));
    made.filter(|made| !made.value.name.is_empty() && names.insert(made.value.name.clone())).collect()
}

/// Routes towards the application stand inside their listeners.
pub(crate) fn inbound_routes(placement: &Placement, mut made: Made<Listener>) -> Made<Listener> {
    let set = &placement.patches.inbound;
    if set.has(OF_ROUTES) {
        let mut applied = Applied::default();
        let chains = made.value.filter_chains.iter_mut().chain(made.value.default_filter_chain.as_mut());
        for filter in chains.flat_map(|chain| &mut chain.filters) {
            http::patch_routes(placement, filter, &mut applied);
        }
        made.patched.extend(applied.0);
    }
    made
}

fn filters(set: &PatchSet, listener: &mut Listener, applied: &mut Applied) {
    for patch in set.of(ApplyTo::ListenerFilter) {
        if !matches(patch, listener) {
            continue;
        }
        let name = wanted(patch).map(|wanted| wanted.listener_filter.as_str()).filter(|name| !name.is_empty());
        let named = |filter: &ListenerFilter| Some(filter.name.as_str()) == name;
        let done = if patch.operation == Operation::Merge {
            listener.listener_filters.iter_mut().filter(|filter| named(filter)).any(|filter| merge(filter, patch))
        } else {
            list::edit(&mut listener.listener_filters, patch, name.map(|_| &named as &dyn Fn(&_) -> bool))
        };
        applied.note_if(done, patch);
    }
}

/// The name stays; what has no configuration has nothing to merge with.
fn merge(filter: &mut ListenerFilter, patch: &Patch) -> bool {
    let Some(ConfigType::TypedConfig(held)) = &mut filter.config_type else { return false };
    let wanted = value::message::<ListenerFilter>(patch).and_then(|filter| filter.config_type);
    matches!(wanted, Some(ConfigType::TypedConfig(wanted)) if any::merge(held, &wanted))
}

pub(super) fn wanted(patch: &Patch) -> Option<&ListenerMatch> {
    match patch.object() {
        Some(MatchedObject::Listener(wanted)) => Some(wanted),
        _ => None,
    }
}

pub(super) fn wanted_chain(patch: &Patch) -> Option<&FilterChainMatch> {
    wanted(patch)?.filter_chain.as_ref()
}

pub(super) fn matches(patch: &Patch, listener: &Listener) -> bool {
    let Some(wanted) = wanted(patch) else { return true };
    if !wanted.name.is_empty() && wanted.name != listener.name {
        return false;
    }
    // Ports are told apart by the chains of these.
    let by_chain = patch.apply_to != ApplyTo::Listener && is_virtual(listener);
    by_chain || wanted.port_number == 0 || port(listener) == Some(wanted.port_number)
}

pub(super) fn is_virtual(listener: &Listener) -> bool {
    matches!(listener.name.as_str(), "virtualInbound" | "virtualOutbound")
}

fn port(listener: &Listener) -> Option<u32> {
    let Address::SocketAddress(socket) = listener.address.as_ref()?.address.as_ref()? else { return None };
    match socket.port_specifier.as_ref()? {
        PortSpecifier::PortValue(port) => Some(*port),
        PortSpecifier::NamedPort(_) => None,
    }
}

//! LISTENER and LISTENER_FILTER patches. Chains and their filters are patched in `chain`, `network` and `http`.

use std::collections::BTreeSet;

use config::kinds::envoy_filter::{ApplyTo, FilterChainMatch, ListenerMatch, MatchedObject, Operation};
use model::{Patch, PatchSet, Placement};
use wire::envoy::config::core::v3::address::Address;
use wire::envoy::config::core::v3::socket_address::PortSpecifier;
use wire::envoy::config::listener::v3::{Listener, ListenerFilter, listener_filter::ConfigType};

use super::{Applied, LISTENER_PATCH_KINDS, ROUTE_PATCH_KINDS, any, chain, http, list, value};
use crate::translated::Translated;

/// `None`: it is removed.
pub(crate) fn patch(set: &PatchSet, made: Translated<Listener>) -> Option<Translated<Listener>> {
    if !set.has(LISTENER_PATCH_KINDS) {
        return Some(made);
    }
    let mut made = made;
    let mut applied = Applied::default();
    for patch in set.of(ApplyTo::Listener) {
        match patch.operation {
            _ if !matches(patch, &made.value) => {}
            Operation::Remove => return None,
            Operation::Merge => applied.record_if(value::merge(&mut made.value, patch), patch),
            _ => {}
        }
    }
    filters(set, &mut made.value, &mut applied);
    chain::patch(set, &mut made.value, &mut applied);
    made.patched.extend(applied.0);
    Some(made)
}

/// Listeners that patches add, unless their name is taken. They are not patched again.
pub(crate) fn new_listeners(set: &PatchSet, taken: &BTreeSet<String>) -> Vec<Translated<Listener>> {
    let mut names = taken.clone();
    let added = set.of(ApplyTo::Listener).iter().filter(|patch| patch.operation == Operation::Add);
    let made = added.filter_map(|patch| Some(Translated::of_patch(value::message::<Listener>(patch)?, patch)));
    made.filter(|made| !made.value.name.is_empty() && names.insert(made.value.name.clone())).collect()
}

/// Inbound routes are inline in their listeners.
pub(crate) fn inbound_routes(placement: &Placement, mut made: Translated<Listener>) -> Translated<Listener> {
    let set = &placement.patches.inbound;
    if set.has(ROUTE_PATCH_KINDS) {
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
        let name = listener_match(patch).map(|wanted| wanted.listener_filter.as_str()).filter(|name| !name.is_empty());
        let named = |filter: &ListenerFilter| Some(filter.name.as_str()) == name;
        let done = if patch.operation == Operation::Merge {
            listener.listener_filters.iter_mut().filter(|filter| named(filter)).any(|filter| merge(filter, patch))
        } else {
            list::edit(&mut listener.listener_filters, patch, name.map(|_| &named as &dyn Fn(&_) -> bool))
        };
        applied.record_if(done, patch);
    }
}

/// The name stays. A filter without a configuration is not merged into.
fn merge(filter: &mut ListenerFilter, patch: &Patch) -> bool {
    let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { return false };
    let wanted = value::message::<ListenerFilter>(patch).and_then(|filter| filter.config_type);
    matches!(wanted, Some(ConfigType::TypedConfig(wanted)) if any::merge(config, &wanted))
}

pub(super) fn listener_match(patch: &Patch) -> Option<&ListenerMatch> {
    match patch.object() {
        Some(MatchedObject::Listener(wanted)) => Some(wanted),
        _ => None,
    }
}

pub(super) fn filter_chain_match(patch: &Patch) -> Option<&FilterChainMatch> {
    listener_match(patch)?.filter_chain.as_ref()
}

pub(super) fn matches(patch: &Patch, listener: &Listener) -> bool {
    let Some(wanted) = listener_match(patch) else { return true };
    if !wanted.name.is_empty() && wanted.name != listener.name {
        return false;
    }
    // The filter chains of the virtual listeners match ports.
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

//! FILTER_CHAIN patches.

use config::kinds::envoy_filter::{ApplyTo, Operation};
use model::{Patch, PatchSet};
use wire::envoy::config::listener::v3::{FilterChain, Listener};

use super::{Applied, cluster, listener, network, value};

/// Patches the chains of a listener. Added chains are not patched again.
pub(super) fn patch(set: &PatchSet, parent: &mut Listener, applied: &mut Applied) {
    // Listener matches refer to the listener before it is patched.
    let mut chains = std::mem::take(&mut parent.filter_chains);
    chains.retain_mut(|chain| patch_one(set, parent, chain, applied));
    if let Some(mut rest) = parent.default_filter_chain.take() {
        parent.default_filter_chain = patch_one(set, parent, &mut rest, applied).then_some(rest);
    }
    for patch in set.of(ApplyTo::FilterChain) {
        if patch.operation != Operation::Add || !listener::matches(patch, parent) {
            continue;
        }
        // Envoy rejects a chain without filters.
        if let Some(added) = value::message::<FilterChain>(patch).filter(|added| !added.filters.is_empty()) {
            chains.push(added);
            applied.record(patch);
        }
    }
    parent.filter_chains = chains;
}

/// `false`: it is removed.
fn patch_one(set: &PatchSet, parent: &Listener, chain: &mut FilterChain, applied: &mut Applied) -> bool {
    for patch in set.of(ApplyTo::FilterChain) {
        if !listener::matches(patch, parent) || !matches(patch, parent, chain) {
            continue;
        }
        match patch.operation {
            Operation::Remove => {
                applied.record(patch);
                return false;
            }
            Operation::Merge => applied.record_if(merge(chain, patch), patch),
            _ => {}
        }
    }
    network::patch(set, parent, chain, applied);
    true
}

/// As in istiod a patch with the name of the chain's transport socket merges into the socket only.
fn merge(chain: &mut FilterChain, patch: &Patch) -> bool {
    let Some(wanted) = value::message::<FilterChain>(patch) else { return false };
    match (&mut chain.transport_socket, &wanted.transport_socket) {
        (Some(current), Some(socket)) if current.name == socket.name => cluster::merge_socket(current, socket),
        _ => value::merge(chain, patch),
    }
}

/// The listener has matched already.
pub(super) fn matches(patch: &Patch, parent: &Listener, chain: &FilterChain) -> bool {
    let Some(wanted) = listener::listener_match(patch) else { return true };
    let found = chain.filter_chain_match.as_ref();
    let port = found.and_then(|found| found.destination_port.as_ref()).map(|port| port.value);
    if listener::is_virtual(parent) && wanted.port_number > 0 && port != Some(wanted.port_number) {
        return false;
    }
    let Some(wanted) = &wanted.filter_chain else { return true };
    let name = wanted.name.is_empty() || wanted.name == chain.name;
    let sni = wanted.sni.is_empty() || found.is_some_and(|found| found.server_names.contains(&wanted.sni));
    let transport = wanted.transport_protocol.is_empty()
        || found.is_some_and(|found| found.transport_protocol == wanted.transport_protocol);
    let protocols = wanted.application_protocols.is_empty()
        || found.is_some_and(|found| {
            let mut asked = wanted.application_protocols.split(',');
            asked.all(|protocol| found.application_protocols.iter().any(|own| own == protocol))
        });
    let destination = wanted.destination_port == 0 || port == Some(wanted.destination_port);
    name && sni && transport && protocols && destination
}

//! Patches of EnvoyFilters, applied to messages that are made. Which patches hold for a proxy is decided in the model. What a patch does
//! not match is left as it is, and costs nothing but the look at its name.

mod any;
mod chain;
mod cluster;
mod extension;
mod http;
mod list;
mod listener;
mod network;
mod route;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use config::kinds::envoy_filter::ApplyTo;
use model::{Patch, PatchId};

pub use cluster::ClusterPatches;
pub use route::patches_route;
pub use value::read_patches;

pub(crate) use cluster::added as added_clusters;
pub(crate) use extension::added as added_extensions;
pub(crate) use listener::{added as added_listeners, inbound_routes, patched as patched_listener};
pub(crate) use route::patched as patched_route;

/// What listeners are made with.
pub const OF_LISTENERS: &[ApplyTo] =
    &[ApplyTo::Listener, ApplyTo::FilterChain, ApplyTo::NetworkFilter, ApplyTo::HttpFilter, ApplyTo::ListenerFilter];

/// What routes are made with.
pub const OF_ROUTES: &[ApplyTo] = &[ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];

/// The patches that changed a message.
#[derive(Debug, Default)]
struct Applied(BTreeSet<PatchId>);

impl Applied {
    fn note(&mut self, patch: &Patch) {
        self.0.insert(patch.id.clone());
    }

    fn note_if(&mut self, applied: bool, patch: &Patch) {
        if applied {
            self.note(patch);
        }
    }
}

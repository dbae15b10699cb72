//! EnvoyFilter patches, applied to translated messages. Which patches apply to a proxy is decided in the model. A message that no patch
//! matches costs a comparison of its name.

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
mod workload_fields;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use config::kinds::envoy_filter::ApplyTo;
use model::{Patch, PatchId};

pub use cluster::ClusterPatches;
pub use route::patches_route;
pub use value::{read_patches, unknown_patch_names};

pub(crate) use cluster::new_clusters;
pub(crate) use extension::new_extensions;
pub(crate) use listener::{inbound_routes, new_listeners, patch as patch_listener};
pub(crate) use route::patch_configuration;
pub(crate) use workload_fields::{keep_connection_managers, keep_routes};

/// The kinds of patches that change listeners.
pub const LISTENER_PATCH_KINDS: &[ApplyTo] =
    &[ApplyTo::Listener, ApplyTo::FilterChain, ApplyTo::NetworkFilter, ApplyTo::HttpFilter, ApplyTo::ListenerFilter];

/// The kinds of patches that change routes.
pub const ROUTE_PATCH_KINDS: &[ApplyTo] = &[ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];

/// The patches that changed a message.
#[derive(Debug, Default)]
struct Applied(BTreeSet<PatchId>);

impl Applied {
    fn record(&mut self, patch: &Patch) {
        self.0.insert(patch.id.clone());
    }

    fn record_if(&mut self, applied: bool, patch: &Patch) {
        if applied {
            self.record(patch);
        }
    }
}

//! The mesh as Envoy configuration: pure functions from a mesh and a placed proxy to messages. No IO, no clock, no log, no streams.

mod address;
mod cluster;
mod endpoint;
mod extension;
mod filter;
mod fraction;
mod hcm;
mod headers;
mod listener;
mod locality;
mod made;
mod metadata;
mod name_table;
mod names;
mod patch;
mod proto;
mod route;
mod secret;
mod stat_pattern;
mod telemetry;
mod text_match;
mod tls;

pub use cluster::{
    built_in_clusters, inbound_clusters, inbound_passthrough, own_clusters, service_clusters, sni_clusters,
};
pub use endpoint::{assignment, empty_assignment};
pub use extension::extension_configs;
pub use listener::{
    Cast, HttpListeners, InboundMould, InboundPorts, OutboundListeners, inbound_listeners, outbound_listeners,
};
pub use made::Made;
pub use name_table::name_table;
pub use names::ClusterName;
pub use patch::{ClusterPatches, OF_LISTENERS, OF_ROUTES, patches_route, read_patches};
pub use route::{PLAIN_PORT, empty_route, read_by_routes, respoken, route, serves_all_ports};
pub use secret::secret;
pub use telemetry::spans::Spans;

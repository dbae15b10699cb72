//! Envoy configuration from a mesh: functions of a mesh and a placed proxy that return xDS messages; equal input gives equal bytes. No IO, no
//! clock, no logs, no streams. Process-wide state: only constants that are encoded once.

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
mod translated;

pub use cluster::{
    built_in_clusters, inbound_clusters, inbound_passthrough, own_clusters, service_clusters, sni_clusters,
};
pub use endpoint::{assignment, empty_assignment};
pub use extension::extension_configs;
pub use listener::{
    HttpListeners, InboundListenerTemplate, InboundPorts, OutboundListeners, TemplateInstance, inbound_listeners,
    outbound_listeners,
};
pub use name_table::name_table;
pub use names::ClusterName;
pub use patch::{
    ClusterPatches, LISTENER_PATCH_KINDS, ROUTE_PATCH_KINDS, patches_route, read_patches, unknown_patch_names,
};
pub use route::{DEFAULT_HTTP_PORT, affects_routes, changed_routes, empty_route, route, serves_all_ports};
pub use secret::secret;
pub use telemetry::encoded_tracing::EncodedTracing;
pub use translated::Translated;

//! One module per kind: its fields and their deserialization. Parts that several kinds share come last.

pub mod config_map;
pub mod endpoint_slice;
pub(crate) mod endpoints;
pub mod ingress;
pub mod ingress_class;
pub mod namespace;
pub mod node;
pub mod pod;
pub mod secret;
pub mod service;
pub mod service_account;

pub mod authorization_policy;
pub mod destination_rule;
pub mod envoy_filter;
pub mod gateway;
pub mod peer_authentication;
pub mod proxy_config_object;
pub mod request_authentication;
pub mod service_entry;
pub mod sidecar;
pub mod telemetry;
pub mod traffic_extension;
pub mod virtual_service;
pub mod wasm_plugin;
pub mod workload_entry;
pub mod workload_group;

pub mod client_tls;
#[cfg(test)]
pub(crate) mod example;
pub mod json_object;
#[cfg(test)]
mod kubernetes_example;
pub(crate) mod one_of;
pub mod port;
pub mod string_match;
pub mod target_ref;
pub mod transport;
pub mod workload_selector;

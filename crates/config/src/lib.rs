//! Objects of Kubernetes and Istio: parsing into typed specs, validation, the store with its snapshots, and diagnostics.
//! Knows neither Envoy nor the Kubernetes client, and is not async.

mod address;
pub mod api_object;
mod catalogue;
pub mod de;
pub mod diagnostic;
pub mod duration;
pub mod host;
pub mod intern;
pub mod json;
pub mod jwks;
pub mod kind;
pub mod kinds;
pub mod labels;
pub mod locality;
pub mod locator;
pub mod mesh;
pub mod meta;
pub mod object;
pub mod pattern;
pub mod ser;
pub mod similar;
pub mod store;
pub mod tree;
pub mod validate;
pub mod yaml;

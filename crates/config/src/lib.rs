//! Objects of Kubernetes and Istio: texts into checked types, the store and its snapshots, and notes on what is wrong.
//! Knows neither Envoy nor the Kubernetes client, and is not async.

mod address;
mod catalogue;
pub mod de;
pub mod duration;
pub mod host;
pub mod json;
pub mod jwks;
pub mod kind;
pub mod kinds;
pub mod labels;
pub mod locality;
pub mod mesh;
pub mod meta;
pub mod note;
pub mod object;
pub mod pattern;
pub mod ser;
pub mod shared;
pub mod store;
pub mod tree;
pub mod validate;
pub mod yaml;

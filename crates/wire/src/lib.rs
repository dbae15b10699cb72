//! Every protobuf message that Meltemi uses, generated at build time, and the descriptor pool for their JSON. Knows no mesh and no xDS
//! protocol.

pub mod any;
pub mod json;
mod pool;
pub mod private_key;
pub mod proto_struct;

pub use pool::pool;

#[allow(clippy::all, clippy::pedantic, unreachable_pub, rustdoc::all)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use messages::{cel, envoy, google, istio, opentelemetry, stats, udpa, xds};

//! Every protobuf message we speak, generated at build time, and the descriptor pool behind their JSON forms. Knows nothing of ours.

pub mod any;
pub mod backward;
pub mod json;
mod pool;
pub mod structure;

pub use pool::pool;

#[allow(clippy::all, clippy::pedantic, unreachable_pub, rustdoc::all)]
mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}

pub use messages::{cel, envoy, google, istio, opentelemetry, stats, udpa, xds};

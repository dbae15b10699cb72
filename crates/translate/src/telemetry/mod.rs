//! Telemetry: access logs, tracing, metrics. Which providers apply is decided in `model`.

pub(crate) mod access_log;
mod collector;
mod custom_tag;
pub(crate) mod encoded_tracing;
mod grpc_log;
mod log_format;
mod open_telemetry;
pub(crate) mod stats;
mod tracer;
pub(crate) mod tracing;

use model::{Placement, Side};

use crate::filter::Direction;

/// A gateway reports as the client of its upstreams.
fn side(placement: &Placement, direction: Direction) -> &Side {
    match direction {
        Direction::Inbound => &placement.telemetry.server,
        Direction::Outbound => &placement.telemetry.client,
    }
}

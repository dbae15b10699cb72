//! What proxies tell of the traffic they carry: access logs, spans, metrics. Who is told what is decided in `model`.

pub(crate) mod access_log;
mod collector;
mod custom_tag;
mod grpc_log;
mod log_format;
mod open_telemetry;
pub(crate) mod spans;
pub(crate) mod stats;
mod tracer;
pub(crate) mod tracing;

use model::{Placement, Side};

use crate::filter::Direction;

/// A gateway observes as a client of what it forwards to.
fn side(placement: &Placement, direction: Direction) -> &Side {
    match direction {
        Direction::Inbound => &placement.telemetry.server,
        Direction::Outbound => &placement.telemetry.client,
    }
}

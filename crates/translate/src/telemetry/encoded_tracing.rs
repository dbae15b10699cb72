//! The tracing fields of HTTP connection managers, encoded: equal in all listeners of a workload in one direction.

use bytes::Bytes;
use model::{Mesh, Placement};
use protobuf::field;

use super::tracing::{ConnectionTracing, connection_tracing};
use crate::filter::Direction;

/// Field numbers.
pub(crate) const TRACING: u32 = 7;
pub(crate) const REQUEST_ID: u32 = 36;

/// Each field with its tag; empty if absent.
pub struct EncodedTracing {
    pub(crate) tracing: Bytes,
    pub(crate) request_id: Bytes,
}

impl EncodedTracing {
    pub fn outbound(mesh: &Mesh, placement: &Placement) -> Self {
        Self::encode(mesh, placement, Direction::Outbound)
    }

    pub fn inbound(mesh: &Mesh, placement: &Placement) -> Self {
        Self::encode(mesh, placement, Direction::Inbound)
    }

    /// The inbound fields, reusing the outbound ones if they are equal, which is common.
    pub fn to_inbound(self, mesh: &Mesh, placement: &Placement) -> Self {
        let same = placement.telemetry.client.tracing == placement.telemetry.server.tracing;
        if same { self } else { Self::inbound(mesh, placement) }
    }

    fn encode(mesh: &Mesh, placement: &Placement, direction: Direction) -> Self {
        let ConnectionTracing { tracing, request_id } = connection_tracing(mesh, placement, direction);
        let tracing = tracing.map(|tracing| field(TRACING, &tracing)).unwrap_or_default();
        Self { tracing, request_id: field(REQUEST_ID, &request_id) }
    }
}

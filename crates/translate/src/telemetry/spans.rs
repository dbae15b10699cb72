//! What connection managers say of spans, encoded: the same in all listeners of a workload that face one way.

use bytes::Bytes;
use model::{Mesh, Placement};
use wire::backward::field;

use super::tracing::{Traced, traced};
use crate::filter::Direction;

/// Numbers of the fields.
pub(crate) const TRACING: u32 = 7;
pub(crate) const REQUEST_ID: u32 = 36;

/// Each field with its key; empty if there is none.
pub struct Spans {
    pub(crate) tracing: Bytes,
    pub(crate) request_id: Bytes,
}

impl Spans {
    pub fn towards_others(mesh: &Mesh, placement: &Placement) -> Self {
        Self::facing(mesh, placement, Direction::Outbound)
    }

    pub fn arriving(mesh: &Mesh, placement: &Placement) -> Self {
        Self::facing(mesh, placement, Direction::Inbound)
    }

    /// From those towards others. Mostly they are the same.
    pub fn turned(self, mesh: &Mesh, placement: &Placement) -> Self {
        let same = placement.telemetry.client.tracing == placement.telemetry.server.tracing;
        if same { self } else { Self::arriving(mesh, placement) }
    }

    fn facing(mesh: &Mesh, placement: &Placement, direction: Direction) -> Self {
        let Traced { tracing, request_id } = traced(mesh, placement, direction);
        let tracing = tracing.map(|tracing| field(TRACING, &tracing)).unwrap_or_default();
        Self { tracing, request_id: field(REQUEST_ID, &request_id) }
    }
}

//! Moulds of inbound listeners, for the workloads that come between two changes.

use std::collections::HashMap;

use model::{InboundKey, Mesh, Placement, Protocol};
use translate::{InboundMould, InboundPorts};
use xds::TypeUrl;

use crate::parts;
use crate::rendered::Rendered;

/// By all that the listeners of their workloads have alike.
#[derive(Default)]
pub(crate) struct Moulds(HashMap<(InboundKey, Vec<(u16, Protocol)>), InboundMould>);

/// A mould is as large as a listener; where workloads have so little in common they gain nothing.
const MANY: usize = 256;

impl Moulds {
    /// Of a workload with this key.
    pub(crate) fn listeners(&mut self, mesh: &Mesh, placement: &Placement, key: &InboundKey) -> Vec<Rendered> {
        let Some(ports) = InboundPorts::of(mesh, placement) else { return parts::inbound_listeners(mesh, placement) };
        if self.0.len() >= MANY {
            self.0.clear();
        }
        let mould = self.0.entry((key.nameless(), ports.spoken()));
        let mould = mould.or_insert_with(|| InboundMould::new(mesh, placement, &ports));
        let (name, made) = mould.packed(mesh, placement, ports);
        vec![Rendered::packed(TypeUrl::Listener, name, made)]
    }

    pub(crate) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

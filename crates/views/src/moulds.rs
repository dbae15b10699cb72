//! What workloads that come between two changes have alike in what arrives at them: made once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::{InboundKey, Mesh, Placement, Protocol};
use translate::{InboundMould, InboundPorts, Spans};

use crate::layer::Ware;
use crate::parts;

/// All that translation reads of a workload besides names: its key without them, and what its ports speak.
type Shape = (InboundKey, Vec<(u16, Protocol)>);

/// `None`: one has come so far. A mould costs as much as what comes from it, and many workloads are the only ones of their shape.
#[derive(Default)]
pub(crate) struct Moulds(HashMap<Shape, Option<Alike>>);

struct Alike {
    listener: InboundMould,
    /// The cluster of the ports that nobody declared.
    passthrough: Option<Ware>,
}

/// A mould is as large as a listener; where workloads have so little in common they gain nothing.
const MANY: usize = 256;

impl Moulds {
    /// All that arrives at a workload with this key. `None`: it has nothing in common with those before it. `spans`: those towards others, if they are known.
    pub(crate) fn inbound(
        &mut self,
        mesh: &Mesh,
        placement: &Placement,
        key: &InboundKey,
        spans: Option<Spans>,
    ) -> Option<Vec<Ware>> {
        let ports = InboundPorts::of(mesh, placement)?;
        if self.0.len() >= MANY {
            self.clear();
        }
        let alike = match self.0.entry((key.nameless(), ports.spoken())) {
            Entry::Occupied(known) => known.into_mut().get_or_insert_with(|| Alike::new(mesh, placement, &ports)),
            Entry::Vacant(free) => {
                free.insert(None);
                return None;
            }
        };
        let arriving = || Spans::arriving(mesh, placement);
        let spans = spans.map_or_else(arriving, |spans| spans.turned(mesh, placement));
        let (name, listener) = alike.listener.cast(placement, ports, &spans);
        let own = translate::own_clusters(mesh, placement).into_iter().map(parts::cluster);
        let mut out: Vec<_> = own.chain(parts::extensions(placement)).map(Ware::new).collect();
        out.push(Ware::cast(name, &listener));
        out.extend(alike.passthrough.clone());
        Some(out)
    }

    pub(crate) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

impl Alike {
    fn new(mesh: &Mesh, placement: &Placement, ports: &InboundPorts) -> Self {
        let passthrough = translate::inbound_passthrough(mesh, placement);
        Self {
            listener: InboundMould::new(mesh, placement, ports),
            passthrough: passthrough.map(parts::cluster).map(Ware::new),
        }
    }
}

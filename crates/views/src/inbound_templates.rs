//! Inbound listener templates for workloads that join between two changes and differ only in names. Dropped with every change.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::{InboundKey, Mesh, Placement, Protocol};
use translate::{EncodedTracing, InboundListenerTemplate, InboundPorts};

use crate::layer::EncodedResource;
use crate::layer_kinds;

/// Everything that inbound translation reads except names: the key without names, and the protocol of each port.
type InboundShape = (InboundKey, Vec<(u16, Protocol)>);

/// `None`: one workload of the shape has joined so far. A template costs as much as a listener, and many workloads are the only ones of
/// their shape.
#[derive(Default)]
pub(crate) struct InboundTemplates(HashMap<InboundShape, Option<SharedInbound>>);

struct SharedInbound {
    listener: InboundListenerTemplate,
    /// The cluster for undeclared ports.
    passthrough: Option<EncodedResource>,
}

/// A template is as large as a listener. Workloads with more shapes than this gain nothing from templates.
const MAX_SHAPES: usize = 256;

impl InboundTemplates {
    /// All inbound resources of a workload with this key. `None`: no earlier workload has its shape. `tracing`: the tracing fields of the
    /// outbound listeners, if they are known.
    pub(crate) fn inbound(
        &mut self,
        mesh: &Mesh,
        placement: &Placement,
        key: &InboundKey,
        tracing: Option<EncodedTracing>,
    ) -> Option<Vec<EncodedResource>> {
        let ports = InboundPorts::of(mesh, placement)?;
        if self.0.len() >= MAX_SHAPES {
            self.clear();
        }
        let shared = match self.0.entry((key.without_names(), ports.protocols())) {
            Entry::Occupied(known) => {
                known.into_mut().get_or_insert_with(|| SharedInbound::new(mesh, placement, &ports))
            }
            Entry::Vacant(free) => {
                free.insert(None);
                return None;
            }
        };
        let inbound = || EncodedTracing::inbound(mesh, placement);
        let tracing = tracing.map_or_else(inbound, |tracing| tracing.to_inbound(mesh, placement));
        let (name, listener) = shared.listener.instantiate(placement, ports, &tracing);
        let own = translate::own_clusters(mesh, placement).into_iter().map(layer_kinds::render_cluster);
        let mut out: Vec<_> = own.chain(layer_kinds::render_extensions(placement)).map(EncodedResource::new).collect();
        out.push(EncodedResource::from_template(name, &listener));
        out.extend(shared.passthrough.clone());
        Some(out)
    }

    pub(crate) fn clear(&mut self) {
        self.0 = HashMap::new();
    }
}

impl SharedInbound {
    fn new(mesh: &Mesh, placement: &Placement, ports: &InboundPorts) -> Self {
        let passthrough = translate::inbound_passthrough(mesh, placement);
        Self {
            listener: InboundListenerTemplate::new(mesh, placement, ports),
            passthrough: passthrough.map(layer_kinds::render_cluster).map(EncodedResource::new),
        }
    }
}

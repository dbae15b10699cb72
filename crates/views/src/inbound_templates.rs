//! What inbound resources of workloads share that differ only in names: the listener as a template, and the cluster for undeclared ports. They are
//! translated once for all workloads of a shape, when proxies join and when a change concerns many of them. Dropped with every change.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::{InboundKey, Mesh, Placement, Protocol};
use translate::{EncodedTracing, InboundListenerTemplate, InboundPorts};

use crate::layer::EncodedResource;
use crate::layer_kinds;

/// Everything that inbound translation reads except names: the key without names, and the shape of each port.
type InboundShape = (InboundKey, Vec<(u16, Protocol, Option<u16>)>);

/// `None`: one workload of the shape was translated so far. A template costs as much memory as a listener, and many workloads are the only ones
/// of their shape.
#[derive(Default)]
pub(crate) struct InboundTemplates(HashMap<InboundShape, Option<SharedInbound>>);

pub(crate) struct SharedInbound {
    /// `None`: patches remove it.
    listener: Option<InboundListenerTemplate>,
    /// The cluster for undeclared ports.
    pub(crate) passthrough: Option<EncodedResource>,
}

/// A template is as large as a listener. Workloads with more shapes than this gain nothing from templates.
const MAX_SHAPES: usize = 256;

impl InboundTemplates {
    /// What a workload with this key shares with others, and its ports. `None`: no earlier workload has its shape.
    pub(crate) fn shared(
        &mut self,
        mesh: &Mesh,
        placement: &Placement,
        key: &InboundKey,
    ) -> Option<(&SharedInbound, InboundPorts)> {
        let ports = InboundPorts::of(mesh, placement)?;
        if self.0.len() >= MAX_SHAPES {
            self.clear();
        }
        match self.0.entry((key.without_names(), ports.shapes())) {
            Entry::Occupied(known) => {
                let shared = known.into_mut().get_or_insert_with(|| SharedInbound::new(mesh, placement, &ports));
                Some((shared, ports))
            }
            Entry::Vacant(free) => {
                free.insert(None);
                None
            }
        }
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

    /// The listener of a workload with these ports. `tracing`: the tracing fields of its outbound listeners, if they are known.
    pub(crate) fn listener(
        &self,
        mesh: &Mesh,
        placement: &Placement,
        ports: InboundPorts,
        tracing: Option<EncodedTracing>,
    ) -> Option<EncodedResource> {
        let template = self.listener.as_ref()?;
        let inbound = || EncodedTracing::inbound(mesh, placement);
        let tracing = tracing.map_or_else(inbound, |tracing| tracing.to_inbound(mesh, placement));
        Some(EncodedResource::from_template(template.name(), &template.instantiate(placement, ports, &tracing)))
    }
}

//! Estimates of the memory of each stage of a push, computed at each scrape.

use std::{
    mem::size_of,
    sync::{Arc, OnceLock, Weak},
};

use prometheus::{
    IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{
    Connections, Register, Stage,
    encoding::encoded_bytes::EncodedBytes,
    protocol::watch::Watch,
    server::{Shared, session::Session},
};

/// Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    gauges: IntGaugeVec,
    /// What clients make us keep, as it is limited.
    clients: IntGaugeVec,
    server: Arc<OnceLock<Weak<Shared>>>,
}

impl Memory {
    pub(crate) fn new(register: &Register) -> Result<Memory, prometheus::Error> {
        let help = "memory of each stage, estimated from counts and sizes. `serialization` is exact: encoded resources, each \
                    once, and cached responses";
        let gauges = IntGaugeVec::new(Opts::new("meltemi_memory_bytes", help), &["part"])?;
        let help = "bytes that clients of the xDS ports make the server keep, as its limits count them: `buffered` (incomplete requests, responses that are not \
                    read), `kept` (names, long nodes), and what of both is taken from the `pool` that addresses share";
        let clients = IntGaugeVec::new(Opts::new("meltemi_xds_client_bytes", help), &["kind"])?;
        let memory = Memory { gauges, clients, server: Arc::default() };
        for stage in Stage::ALL {
            memory.set(stage, 0);
        }
        register.add("gauge", memory)
    }

    /// Sets the memory of a stage outside of this crate.
    pub fn set(&self, stage: Stage, bytes: usize) {
        self.gauges.with_label_values(&[stage.label()]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Refreshed.
    pub fn parts(&self) -> [(Stage, usize); 9] {
        self.refresh();
        Stage::ALL.map(|stage| {
            let bytes = self.gauges.with_label_values(&[stage.label()]).get();
            (stage, usize::try_from(bytes).unwrap_or_default())
        })
    }

    pub(crate) fn observe(&self, shared: &Arc<Shared>) {
        // Set already: another server is observed.
        let _ = self.server.set(Arc::downgrade(shared));
    }

    fn refresh(&self) {
        let Some(shared) = self.server.get().and_then(Weak::upgrade) else { return };
        let Streams { state, acks } = Streams::of(&shared.connections);
        self.set(Stage::PushContext, shared.provider.memory_bytes());
        self.set(Stage::Delta, state);
        self.set(Stage::Ack, acks);
        self.set(Stage::PushQueue, shared.throttle.queue_len() * size_of::<usize>() * 2);
        self.set(Stage::Serialization, EncodedBytes::total() + shared.responses.bytes());
        self.set(Stage::Send, shared.connections.len() * SOCKET);
        let [buffered, kept] = shared.budget.bytes();
        for (kind, bytes) in [("buffered", buffered), ("kept", kept), ("pool", shared.budget.pooled_bytes())] {
            self.clients.with_label_values(&[kind]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}

/// An estimate for a connection with one stream: its task, HTTP/2 and tokio, without what is being written.
const SOCKET: usize = 9 << 10;

impl Collector for Memory {
    fn desc(&self) -> Vec<&Desc> {
        [self.gauges.desc(), self.clients.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        [self.gauges.collect(), self.clients.collect()].concat()
    }
}

struct Streams {
    /// Subscriptions and entries of the table.
    state: usize,
    /// Sent and ACKed nonces.
    acks: usize,
}

impl Streams {
    fn of(connections: &Connections) -> Streams {
        let (streams, types, names, nonces) = connections.counts();
        Streams { state: streams * size_of::<Session>() + types * WATCH + names * NAME, acks: nonces * NONCE }
    }
}

/// Of one type on a stream.
const WATCH: usize = size_of::<Watch>();
/// Of one subscribed name: its text and its entries in two trees.
const NAME: usize = 96;
/// Of one nonce, shared or not.
const NONCE: usize = 40;

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn every_stage_is_exported_from_the_start() {
        let registry = Registry::new();
        let memory = Memory::new(&Register::new(registry.clone())).expect("registers");
        memory.set(Stage::InformerCache, 7);
        let parts = memory.parts();
        assert_eq!(parts[0], (Stage::InformerCache, 7));
        assert!(parts[1..].iter().all(|(_, bytes)| *bytes == 0));
        assert_eq!(registry.gather()[0].get_metric().len(), 9);
    }
}

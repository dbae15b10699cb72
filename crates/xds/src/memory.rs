//! What the stages of a push hold in memory, as far as it can be told cheaply. Looked at when somebody asks.

use std::{
    mem::size_of,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use prometheus::{
    IntGaugeVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::{Connections, Register, Stage, server::Shared, session::Session, watch::Watch};

/// Bytes of encoded resources that are alive in this process, however many streams share them.
static ENCODED: AtomicUsize = AtomicUsize::new(0);

/// An entry in the count of encoded bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encoded(usize);

impl Encoded {
    pub(crate) fn new(bytes: usize) -> Encoded {
        ENCODED.fetch_add(bytes, Ordering::Relaxed);
        Encoded(bytes)
    }
}

impl Clone for Encoded {
    fn clone(&self) -> Encoded {
        Encoded::new(self.0)
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        ENCODED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Memory {
    gauges: IntGaugeVec,
    looked_at: Arc<OnceLock<Weak<Shared>>>,
}

impl Memory {
    pub(crate) fn new(register: &Register) -> Result<Memory, prometheus::Error> {
        let help = "what each stage holds, estimated from counts and sizes. `serialization` is exact: encoded resources, each \
                    once, and the responses that are kept for the next stream";
        let gauges = IntGaugeVec::new(Opts::new("meltemi_memory_bytes", help), &["part"])?;
        let memory = Memory { gauges, looked_at: Arc::default() };
        for stage in Stage::ALL {
            memory.set(stage, 0);
        }
        register.add("gauge", memory)
    }

    /// What a stage outside of this crate holds.
    pub fn set(&self, stage: Stage, bytes: usize) {
        self.gauges.with_label_values(&[stage.label()]).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The newest numbers.
    pub fn parts(&self) -> [(Stage, usize); 9] {
        self.look();
        Stage::ALL.map(|stage| {
            let bytes = self.gauges.with_label_values(&[stage.label()]).get();
            (stage, usize::try_from(bytes).unwrap_or_default())
        })
    }

    pub(crate) fn look_at(&self, shared: &Arc<Shared>) {
        // Set already: another server shows its streams.
        let _ = self.looked_at.set(Arc::downgrade(shared));
    }

    fn look(&self) {
        let Some(shared) = self.looked_at.get().and_then(Weak::upgrade) else { return };
        let Streams { state, answers } = Streams::of(&shared.connections);
        self.set(Stage::PushContext, shared.provider.bytes());
        self.set(Stage::Delta, state);
        self.set(Stage::Ack, answers);
        self.set(Stage::PushQueue, shared.throttle.waiting() * size_of::<usize>() * 2);
        self.set(Stage::Serialization, ENCODED.load(Ordering::Relaxed) + shared.frames.bytes());
        self.set(Stage::Send, shared.connections.len() * SOCKET);
    }
}

/// Roughly, of a connection with one stream: its task, that of its stream, HTTP/2 and tokio, without what is being written.
const SOCKET: usize = 9 << 10;

impl Collector for Memory {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.look();
        self.gauges.collect()
    }
}

struct Streams {
    /// What each is subscribed to, and its place in tables.
    state: usize,
    /// What each was sent and has answered.
    answers: usize,
}

impl Streams {
    fn of(connections: &Connections) -> Streams {
        let (streams, types, names, nonces) = connections.counts();
        Streams { state: streams * size_of::<Session>() + types * WATCH + names * NAME, answers: nonces * NONCE }
    }
}

/// Of one type on a stream.
const WATCH: usize = size_of::<Watch>();
/// Of one subscribed name: its text and its places in two trees.
const NAME: usize = 96;
/// Of one nonce, shared or not.
const NONCE: usize = 40;

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn encoded_bytes_are_counted_while_they_live() {
        let before = ENCODED.load(Ordering::Relaxed);
        let held = Encoded::new(1 << 40);
        assert!(ENCODED.load(Ordering::Relaxed) >= before.saturating_add(1 << 40) - (1 << 30));
        drop(held);
        assert!(ENCODED.load(Ordering::Relaxed) < 1 << 40);
    }

    #[test]
    fn every_part_is_shown_from_the_start() {
        let registry = Registry::new();
        let memory = Memory::new(&Register::new(registry.clone())).expect("registers");
        memory.set(Stage::InformerCache, 7);
        let parts = memory.parts();
        assert_eq!(parts[0], (Stage::InformerCache, 7));
        assert!(parts[1..].iter().all(|(_, bytes)| *bytes == 0));
        assert_eq!(registry.gather()[0].get_metric().len(), 9);
    }
}

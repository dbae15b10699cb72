//! CPU time by stage of a push. The stages are those by which istiod's users reason about its cost.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http2::clock;
use nix::time::{ClockId, clock_gettime};
use prometheus::{
    CounterVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::Register;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Objects read from a source.
    InformerCache,
    /// Changes that are debounced.
    Debounce,
    /// Computing what changes for each class of proxies.
    PushContext,
    /// Queueing of streams.
    PushQueue,
    /// Computing the difference for one proxy.
    Delta,
    /// Encoding responses.
    Serialization,
    /// Writing and reading sockets, with HTTP/2 and TLS.
    Send,
    /// Signing certificates.
    Certificates,
    /// Handling requests: subscriptions, ACKs and NACKs.
    Ack,
}

impl Stage {
    pub const ALL: [Stage; 9] = [
        Stage::InformerCache,
        Stage::Debounce,
        Stage::PushContext,
        Stage::PushQueue,
        Stage::Delta,
        Stage::Serialization,
        Stage::Send,
        Stage::Certificates,
        Stage::Ack,
    ];

    /// As in the label `stage`.
    pub fn label(self) -> &'static str {
        match self {
            Stage::InformerCache => "informer_cache",
            Stage::Debounce => "debounce",
            Stage::PushContext => "push_context",
            Stage::PushQueue => "push_queue",
            Stage::Delta => "delta",
            Stage::Serialization => "serialization",
            Stage::Send => "send",
            Stage::Certificates => "certificates",
            Stage::Ack => "ack",
        }
    }
}

thread_local! {
    /// The time of nested stages: each stage counts its own time only.
    static NESTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Times a piece of work.
pub(crate) struct Timed {
    began: Instant,
    /// The time of stages nested in the work around this one, so far.
    around: Duration,
}

impl Timed {
    pub(crate) fn begin() -> Timed {
        Timed { began: Instant::now(), around: NESTED.replace(Duration::ZERO) }
    }

    pub(crate) fn end(self, stage: Stage, stages: &Stages) {
        let spent = self.began.elapsed();
        stages.add(stage, spent.saturating_sub(NESTED.get()));
        NESTED.set(self.around + spent);
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Stages {
    spent: Arc<[Shard; SHARDS]>,
    /// Describes the metric only: the values are summed at each scrape.
    seconds: CounterVec,
}

/// Threads count separately: every push adds a dozen times, and contended atomics cost more than reading the clock.
const SHARDS: usize = 8;

/// Nanoseconds of some threads, by stage. Aligned to avoid false sharing.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicU64; 9]);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

fn seconds() -> Result<CounterVec, prometheus::Error> {
    let help = "CPU time by stage. Loading and refreshing are measured as CPU time of their thread; the other stages, which never block and \
                take microseconds, as wall time, an upper bound on an overloaded machine";
    CounterVec::new(Opts::new("meltemi_stage_cpu_seconds_total", help), &["stage"])
}

impl Stages {
    pub(crate) fn new(register: &Register) -> Result<Stages, prometheus::Error> {
        let stages = Stages { spent: Arc::default(), seconds: seconds()? };
        register.add("counter", stages.clone())?;
        Ok(stages)
    }

    /// For work that never blocks and takes microseconds: wall time is ten times cheaper to read than CPU time of the thread.
    pub(crate) fn run<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let timed = Timed::begin();
        let done = work();
        timed.end(stage, self);
        done
    }

    /// A turn of a connection, with all that it does.
    pub(crate) fn turn<T>(&self, work: impl FnOnce() -> T) -> T {
        clock::with_cached_now(|| self.run(Stage::Send, work))
    }

    /// For work that may be preempted: measures CPU time of the thread, in any turn.
    pub fn run_long<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let (began, on_cpu) = (Instant::now(), thread_time());
        let done = work();
        let passed = began.elapsed();
        let spent = thread_time().zip(on_cpu).map(|(after, before)| after.saturating_sub(before));
        self.add(stage, spent.unwrap_or(passed));
        NESTED.set(NESTED.get() + passed);
        clock::refresh();
        done
    }

    pub fn add(&self, stage: Stage, time: Duration) {
        // Overflows after five hundred years.
        self.spent[SHARD.with(|shard| *shard)].0[stage as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Collector for Stages {
    fn desc(&self) -> Vec<&Desc> {
        self.seconds.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Built for each scrape, so that scrapes may run at the same time.
        let Ok(seconds) = seconds() else { return Vec::new() };
        for stage in Stage::ALL {
            let spent: u64 = self.spent.iter().map(|shard| shard.0[stage as usize].load(Ordering::Relaxed)).sum();
            seconds.with_label_values(&[stage.label()]).inc_by(Duration::from_nanos(spent).as_secs_f64());
        }
        seconds.collect()
    }
}

/// CPU time of this thread. `None`: the system does not provide it.
fn thread_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};

    use super::*;

    fn value(registry: &Registry, stage: &str) -> f64 {
        let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("encodes");
        let line = format!("meltemi_stage_cpu_seconds_total{{stage=\"{stage}\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)).expect("a line").parse().expect("a number")
    }

    #[test]
    fn every_stage_is_exported_from_the_start() {
        let registry = Registry::new();
        let _stages = Stages::new(&Register::new(registry.clone())).expect("registers");
        for stage in Stage::ALL {
            assert_eq!(value(&registry, stage.label()), 0.0);
        }
    }

    #[test]
    fn time_is_counted_for_the_innermost_stage() {
        let registry = Registry::new();
        let stages = Stages::new(&Register::new(registry.clone())).expect("registers");
        stages.run(Stage::Send, || {
            stages.run(Stage::Ack, || std::thread::sleep(Duration::from_millis(30)));
            stages.run_long(Stage::PushContext, || std::thread::sleep(Duration::from_millis(30)));
        });
        assert!(value(&registry, "ack") >= 0.03);
        assert!(value(&registry, "send") < 0.03);
        stages.run(Stage::Send, || std::thread::sleep(Duration::from_millis(30)));
        assert!(value(&registry, "send") >= 0.03, "nested time of the previous run is not subtracted again");
    }

    #[test]
    fn run_long_does_not_count_sleep() {
        let registry = Registry::new();
        let stages = Stages::new(&Register::new(registry.clone())).expect("registers");
        stages.run_long(Stage::PushContext, || std::thread::sleep(Duration::from_millis(100)));
        if thread_time().is_some() {
            assert!(value(&registry, "push_context") < 0.05);
        }
        stages.run(Stage::Ack, || std::thread::sleep(Duration::from_millis(10)));
        assert!(value(&registry, "ack") >= 0.01, "run measures wall time");
    }
}

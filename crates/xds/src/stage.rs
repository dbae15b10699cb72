//! Which stage of a push the CPU time goes to. The stages are those by which istiod's users reason about its cost.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};
use prometheus::{
    CounterVec, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use crate::Register;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Objects taken from a source.
    InformerCache,
    /// Changes that wait for others.
    Debounce,
    /// What a change means for each class of proxies.
    PushContext,
    /// Who is written to next.
    PushQueue,
    /// What one proxy lacks.
    Delta,
    /// Responses as bytes.
    Serialization,
    /// Bytes to and from sockets, with HTTP/2 and TLS.
    Send,
    /// Certificates signed.
    Certificates,
    /// Requests read: subscriptions, ACKs and NACKs.
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
    /// What stages took that ran within the one that runs: each counts its own time.
    static WITHIN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Stages {
    spent: Arc<[Share; SHARES]>,
    /// Without numbers: those are added up when they are asked for.
    seconds: CounterVec,
}

/// Threads count apart: every push adds a dozen times, and numbers that all write cost more than the clock.
const SHARES: usize = 8;

/// Nanoseconds of some threads, by stage.
#[derive(Default)]
#[repr(align(128))]
struct Share([AtomicU64; 9]);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SHARES;
}

fn seconds() -> Result<CounterVec, prometheus::Error> {
    let help = "CPU time. Loading and working in are timed by what their thread got; the others, which never wait and take \
                microseconds, by the clock, so that on an overloaded machine they are an upper bound";
    CounterVec::new(Opts::new("meltemi_stage_cpu_seconds_total", help), &["stage"])
}

impl Stages {
    pub(crate) fn new(register: &Register) -> Result<Stages, prometheus::Error> {
        let stages = Stages { spent: Arc::default(), seconds: seconds()? };
        register.add("counter", stages.clone())?;
        Ok(stages)
    }

    /// For work that never waits and takes microseconds: the clock of the wall is ten times cheaper than that of the thread.
    pub fn run<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let around = WITHIN.replace(Duration::ZERO);
        let began = Instant::now();
        let done = work();
        let spent = began.elapsed();
        self.add(stage, spent.saturating_sub(WITHIN.get()));
        WITHIN.set(around + spent);
        done
    }

    /// Time of a stage that was measured elsewhere, and is not to be counted for the one around it.
    pub(crate) fn add_within(&self, stage: Stage, time: Duration) {
        WITHIN.set(WITHIN.get() + time);
        self.add(stage, time);
    }

    /// For work that others may interrupt: counted is what the thread got.
    pub fn run_long<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let (began, on_cpu) = (Instant::now(), thread_time());
        let done = work();
        let spent = thread_time().zip(on_cpu).map(|(after, before)| after.saturating_sub(before));
        self.add(stage, spent.unwrap_or_else(|| began.elapsed()));
        done
    }

    pub fn add(&self, stage: Stage, time: Duration) {
        // In five hundred years of one stage it is full.
        self.spent[SHARE.with(|share| *share)].0[stage as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Collector for Stages {
    fn desc(&self) -> Vec<&Desc> {
        self.seconds.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Made anew, so that others may collect at the same time.
        let Ok(seconds) = seconds() else { return Vec::new() };
        for stage in Stage::ALL {
            let spent: u64 = self.spent.iter().map(|share| share.0[stage as usize].load(Ordering::Relaxed)).sum();
            seconds.with_label_values(&[stage.label()]).inc_by(Duration::from_nanos(spent).as_secs_f64());
        }
        seconds.collect()
    }
}

/// How long this thread was on a processor. `None`: the system does not say.
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
    fn every_stage_is_shown_from_the_start() {
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
            stages.add_within(Stage::Delta, Duration::from_secs(1));
        });
        assert!(value(&registry, "ack") >= 0.03 && value(&registry, "delta") >= 1.0);
        assert!(value(&registry, "send") < 0.03);
        stages.run(Stage::Send, || std::thread::sleep(Duration::from_millis(30)));
        assert!(value(&registry, "send") >= 0.03, "what was within the one before is no longer subtracted");
    }

    #[test]
    fn sleeping_is_no_work() {
        let registry = Registry::new();
        let stages = Stages::new(&Register::new(registry.clone())).expect("registers");
        stages.run_long(Stage::PushContext, || std::thread::sleep(Duration::from_millis(100)));
        if thread_time().is_some() {
            assert!(value(&registry, "push_context") < 0.05);
        }
        stages.run(Stage::Ack, || std::thread::sleep(Duration::from_millis(10)));
        assert!(value(&registry, "ack") >= 0.01, "what never waits is timed by the wall");
    }
}

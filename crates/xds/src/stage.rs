//! Which stage of a push the CPU time goes to. The stages are those by which istiod's users reason about its cost.

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

/// A turn is timed when the last one that was is this long ago, and stands for those in between. On a busy thread that is one in ten; otherwise every
/// one.
const SPACING: Duration = Duration::from_micros(100);

thread_local! {
    /// What stages took that ran within the one that runs: each counts its own time.
    static WITHIN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// For how many turns the one that runs stands. 0: it is not timed.
    static WEIGHT: Cell<u32> = const { Cell::new(1) };
    /// Turns since the last that was timed, and when that ended.
    static UNTIMED: Cell<u32> = const { Cell::new(0) };
    static TIMED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Turns never panic as a whole, but if one does, others are still timed.
struct Whole;

impl Drop for Whole {
    fn drop(&mut self) {
        WEIGHT.set(1);
    }
}

/// Work that is timed, unless the turn is not.
pub(crate) struct Timed(Option<(Instant, Duration)>);

impl Timed {
    pub(crate) fn begin() -> Timed {
        let timed = WEIGHT.get() > 0;
        Timed(timed.then(|| (Instant::now(), WITHIN.replace(Duration::ZERO))))
    }

    pub(crate) fn end(self, stage: Stage, stages: &Stages) {
        let Some((began, around)) = self.0 else { return };
        let spent = began.elapsed();
        stages.add(stage, spent.saturating_sub(WITHIN.get()) * WEIGHT.get());
        WITHIN.set(around + spent);
    }
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
                microseconds, by the clock, so that on an overloaded machine they are an upper bound, and on a busy thread \
                by some of them that stand for the rest";
    CounterVec::new(Opts::new("meltemi_stage_cpu_seconds_total", help), &["stage"])
}

impl Stages {
    pub(crate) fn new(register: &Register) -> Result<Stages, prometheus::Error> {
        let stages = Stages { spent: Arc::default(), seconds: seconds()? };
        register.add("counter", stages.clone())?;
        Ok(stages)
    }

    /// For work that never waits and takes microseconds: the clock of the wall is ten times cheaper than that of the thread.
    pub(crate) fn run<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let timed = Timed::begin();
        let done = work();
        timed.end(stage, self);
        done
    }

    /// A turn of a connection, with all that it does. Most of the time it is not timed: to read the clock is what costs in a turn.
    pub(crate) fn turn<T>(&self, work: impl FnOnce() -> T) -> T {
        clock::turn(|| {
            let _whole = Whole;
            let began = clock::now().into_std();
            if TIMED.get().is_some_and(|ended| began.saturating_duration_since(ended) < SPACING) {
                UNTIMED.set(UNTIMED.get() + 1);
                WEIGHT.set(0);
                return work();
            }
            WEIGHT.set(UNTIMED.replace(0) + 1);
            let done = self.run(Stage::Send, work);
            TIMED.set(Some(Instant::now()));
            done
        })
    }

    /// For work that others may interrupt: counted is what the thread got. It is timed in any turn.
    pub fn run_long<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let (began, on_cpu) = (Instant::now(), thread_time());
        let done = work();
        let passed = began.elapsed();
        let spent = thread_time().zip(on_cpu).map(|(after, before)| after.saturating_sub(before));
        self.add(stage, spent.unwrap_or(passed));
        WITHIN.set(WITHIN.get() + passed);
        clock::look();
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
            stages.run_long(Stage::PushContext, || std::thread::sleep(Duration::from_millis(30)));
        });
        assert!(value(&registry, "ack") >= 0.03);
        assert!(value(&registry, "send") < 0.03);
        stages.run(Stage::Send, || std::thread::sleep(Duration::from_millis(30)));
        assert!(value(&registry, "send") >= 0.03, "what was within the one before is no longer subtracted");
    }

    #[test]
    fn turns_of_a_busy_thread_stand_for_each_other() {
        let registry = Registry::new();
        let stages = Stages::new(&Register::new(registry.clone())).expect("registers");
        let turn = || stages.turn(|| stages.run(Stage::Ack, || std::thread::sleep(SPACING / 4)));
        (0..400).for_each(|_| turn());
        let (counted, slept) = (value(&registry, "ack"), SPACING.as_secs_f64() * 100.0);
        assert!(counted > 0.8 * slept, "{counted} s of {slept}");
        for _ in 0..3 {
            std::thread::sleep(SPACING * 2);
            turn();
            assert_eq!(UNTIMED.get(), 0, "at rest each is timed");
        }
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

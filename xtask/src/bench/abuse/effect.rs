//! What others notice of an attack: how long a change takes to reach all proxies, who is disconnected, how long probes wait, what is allocated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::bench::objects::Objects;
use crate::bench::scenario::Scenario;
use crate::bench::swarm::Swarm;
use shop::http;

/// Between two probes of readiness.
const PROBE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Effect {
    pub(super) changes: usize,
    /// The longest of all changes.
    pub(super) p99_ms: f64,
    /// Proxies that a change did not reach within five seconds, over all changes.
    pub(super) missed: u64,
    /// Streams of proxies that ended.
    pub(super) disconnects: u64,
    /// Why the last of them ended.
    pub(super) last_failure: String,
    /// The longest wait for `/ready`.
    pub(super) ready_ms: f64,
    /// Probes without an answer.
    pub(super) unready: usize,
    /// The most that was allocated.
    pub(super) allocated_mb: f64,
}

impl Effect {
    /// An endpoint of the service that every proxy sees is replaced.
    pub(super) fn change(&mut self, swarm: &mut Swarm, objects: &mut Objects, name: &str) -> Result<()> {
        swarm.say(&format!("mark {} all", name.replace(' ', "-")))?;
        Scenario::Endpoint.change(objects)?;
        let seen = swarm.say("settle 5000 50 6000")?;
        self.changes += 1;
        // Nobody was reached: then all are missed.
        self.p99_ms = self.p99_ms.max(seen["p99_ms"].as_f64().unwrap_or(0.0));
        self.missed += seen["missed"].as_u64().unwrap_or(0);
        Ok(())
    }

    pub(super) fn memory(&mut self, allocated_mb: f64) {
        self.allocated_mb = self.allocated_mb.max(allocated_mb);
    }

    /// Counts what ended since the change.
    pub(super) fn end_of_beat(&mut self, swarm: &mut Swarm) -> Result<()> {
        let seen = swarm.say("settle 0 0 0")?;
        let failed = seen["failed_streams"].as_u64().unwrap_or(0);
        if failed > 0 {
            self.disconnects += failed;
            seen["last_failure"].as_str().unwrap_or_default().clone_into(&mut self.last_failure);
        }
        Ok(())
    }

    pub(super) fn probes(&mut self, waits: &[Option<Duration>]) {
        let longest = waits.iter().flatten().max().copied().unwrap_or_default();
        self.ready_ms = longest.as_secs_f64() * 1000.0;
        self.unready = waits.iter().filter(|wait| wait.is_none()).count();
    }
}

/// Asks for readiness again and again, each time on a new connection as a kubelet does.
pub(super) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Option<Duration>>>,
}

impl Probe {
    pub(super) fn start(http: SocketAddr) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut waits = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let begun = Instant::now();
                waits.push(http::get(http, "localhost", "/ready").is_ok().then(|| begun.elapsed()));
                thread::sleep(PROBE);
            }
            waits
        });
        Probe { stop, thread }
    }

    /// How long each took; `None`: no answer, or another than 200.
    pub(super) fn stop(self) -> Vec<Option<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

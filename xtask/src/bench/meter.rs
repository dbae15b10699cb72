//! What a phase cost: the control plane, the load generator, and how busy the rest of the machine was meanwhile. Linux only.

use std::fs;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};

use super::usage::Cpu;

/// The kernel's unit of processor time in /proc/stat.
const TICKS: f64 = 100.0;

pub(super) struct Meter {
    begun: Instant,
    /// Seconds that all cores together were busy since boot.
    machine: f64,
    /// The control plane, the load generator, then the others that belong to the measurement.
    processes: Vec<(u32, Cpu)>,
}

pub(super) struct Spent {
    /// Seconds of one core.
    pub(super) plane: f64,
    pub(super) swarm: f64,
    /// Share of all cores that processes outside of the measurement took: 0 to 1.
    pub(super) busy: f64,
    /// Seconds that went by.
    pub(super) wall: f64,
}

impl Meter {
    pub(super) fn start(plane: u32, swarm: u32, companions: &[u32]) -> Result<Meter> {
        let own = std::process::id();
        let ids = [plane, swarm].into_iter().chain(companions.iter().copied()).chain([own]);
        let processes = ids.map(|id| Ok((id, Cpu::of(id)?))).collect::<Result<_>>()?;
        Ok(Meter { begun: Instant::now(), machine: machine()?, processes })
    }

    pub(super) fn stop(&self) -> Result<Spent> {
        let spent = self.processes.iter().map(|(id, before)| Ok(Cpu::of(*id)?.since(before)));
        let spent: Vec<f64> = spent.collect::<Result<_>>()?;
        let cores = available_parallelism().map_or(1, usize::from) as f64;
        let others = machine()? - self.machine - spent.iter().sum::<f64>();
        let wall = self.begun.elapsed().as_secs_f64();
        Ok(Spent { plane: spent[0], swarm: spent[1], busy: (others / (wall * cores)).clamp(0.0, 1.0), wall })
    }
}

/// Time stolen by a host counts as busy: it is as much in the way.
fn machine() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    busy_seconds(&text).context("/proc/stat has no line for all cores")
}

/// user nice system idle iowait irq softirq steal
fn busy_seconds(stat: &str) -> Option<f64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = all.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|at| ticks.get(at)).sum::<f64>();
    Some(busy / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy() {
        assert_eq!(busy_seconds("cpu  100 20 30 9000 50 1 2 3 0 0\ncpu0 1 2 3\n"), Some(1.56));
        assert_eq!(busy_seconds("intr 5"), None);
    }
}

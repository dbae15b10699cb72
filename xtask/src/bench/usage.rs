//! What a process costs: processor time and memory, as the kernel counts them. Linux only.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The kernel's unit of utime and stime in /proc: a hundredth of a second on every Linux that matters.
const TICKS: f64 = 100.0;
/// Ticks are rounded per thread; a larger difference means that a thread ended and took its fine count with it.
const ROUNDING: f64 = 0.05;

/// So many looks in a row, 50 ms apart, that found no thread at work or waiting for a core.
const CALM: usize = 8;
/// A process that is never calm is measured as it stands.
const RESTLESS: Duration = Duration::from_secs(60);

/// Processor time so far, twice: exact for living threads, and coarse with those that ended.
pub(super) struct Cpu {
    ticks: f64,
    /// Nanoseconds by thread.
    threads: BTreeMap<String, u64>,
}

impl Cpu {
    pub(super) fn of(process: u32) -> Result<Cpu> {
        let stat = read(process, "stat")?;
        // The name in brackets may hold spaces; what follows it does not.
        let after = stat.rsplit_once(')').context("/proc/PID/stat has no name")?.1;
        let field = |at: usize| after.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok());
        let ticks = field(11).zip(field(12)).map(|(user, system)| user + system).context("/proc/PID/stat is short")?;
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
            let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            let spent = text.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0);
            threads.insert(entry.file_name().to_string_lossy().into_owned(), spent);
        }
        Ok(Cpu { ticks: ticks / TICKS, threads })
    }

    /// Before a process began.
    pub(super) fn none() -> Cpu {
        Cpu { ticks: 0.0, threads: BTreeMap::new() }
    }

    /// Seconds of one core.
    pub(super) fn since(&self, before: &Cpu) -> f64 {
        let spent =
            |(thread, now): (&String, &u64)| now.saturating_sub(before.threads.get(thread).copied().unwrap_or(0));
        let exact = self.threads.iter().map(spent).sum::<u64>() as f64 / 1e9;
        let coarse = self.ticks - before.ticks;
        if coarse > exact + ROUNDING { coarse } else { exact }
    }
}

/// Waits until a process has had nothing to do for a while. What is late on a busy machine waits for a core, and is seen here.
pub(super) fn rest(process: u32) -> Result<()> {
    let (begun, mut calm) = (Instant::now(), 0);
    while calm < CALM && begun.elapsed() < RESTLESS {
        thread::sleep(Duration::from_millis(50));
        calm = if is_running(process)? { 0 } else { calm + 1 };
    }
    Ok(())
}

fn is_running(process: u32) -> Result<bool> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).context("the process has ended")?.flatten();
    let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    let is_running = |stat: &str| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'));
    Ok(states.into_iter().any(|stat| is_running(&stat)))
}

/// Megabytes.
pub(super) struct Memory {
    pub(super) resident: f64,
    /// Since the last `forget_peak`.
    pub(super) peak: f64,
}

impl Memory {
    pub(super) fn of(process: u32) -> Result<Memory> {
        let status = read(process, "status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            kilobytes.map(|kb| kb / 1000.0).with_context(|| format!("/proc/PID/status has no {name}"))
        };
        Ok(Memory { resident: field("VmRSS")?, peak: field("VmHWM")? })
    }

    pub(super) fn forget_peak(process: u32) {
        // 5 is the kernel's word for it; where it is not allowed, the peak is that of the process's life.
        fs::write(format!("/proc/{process}/clear_refs"), "5").ok();
    }
}

fn read(process: u32, what: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{process}/{what}")).with_context(|| format!("read /proc/{process}/{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let me = std::process::id();
        let before = Cpu::of(me).unwrap();
        let begun = Instant::now();
        // On a busy machine a turn on a core may be long in coming.
        while begun.elapsed() < Duration::from_secs(20) && Cpu::of(me).unwrap().since(&before) <= 0.01 {
            std::hint::spin_loop();
        }
        assert!(Cpu::of(me).unwrap().since(&before) > 0.01);
        let memory = Memory::of(me).unwrap();
        assert!(memory.resident > 0.5 && memory.peak >= memory.resident);
    }

    #[test]
    fn one_that_sleeps_is_calm() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        rest(sleeper.id()).unwrap();
        assert!(!is_running(sleeper.id()).unwrap());
        assert!(is_running(std::process::id()).unwrap(), "the thread that asks is at work");
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}

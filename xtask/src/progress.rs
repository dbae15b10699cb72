//! What a person sees while a command runs: one line per step with its time. On a terminal the line moves; elsewhere a
//! long step says every half minute that it is alive.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const TICK: Duration = Duration::from_millis(100);
const QUIET: Duration = Duration::from_secs(30);

/// Runs `command` with its output kept aside: shown only when it fails.
pub(crate) fn step(what: &str, command: &mut Command) -> Result<()> {
    let log = tempfile::NamedTempFile::new().context("make a temporary file for the output of a step")?;
    let output = OpenOptions::new().append(true).open(log.path())?;
    let mut line = Line::new(what);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(TICK);
        line.tick(log.path());
    };
    if status.success() {
        line.end("ok");
        return Ok(());
    }
    line.end("FAILED");
    eprint!("{}", String::from_utf8_lossy(&fs::read(log.path())?));
    bail!("{what} failed ({status})")
}

/// Runs a closure that prints for itself only when something is wrong.
pub(crate) fn own_step(what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let line = Line::new(what);
    let outcome = work();
    line.end(if outcome.is_ok() { "ok" } else { "FAILED" });
    outcome
}

pub(crate) fn elapsed(since: Instant) -> impl Display {
    let time = since.elapsed();
    match time.as_secs() {
        s if s >= 60 => format!("{} min {} s", s / 60, s % 60),
        s if s >= 10 => format!("{s} s"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

struct Line {
    what: String,
    start: Instant,
    spoke: Instant,
    moving: bool,
}

impl Line {
    fn new(what: &str) -> Line {
        let (now, moving) = (Instant::now(), std::io::stderr().is_terminal());
        if moving {
            eprint!("  {what} ...");
        }
        Line { what: what.to_owned(), start: now, spoke: now, moving }
    }

    fn tick(&mut self, log: &Path) {
        if self.moving {
            let last = last_line(log).unwrap_or_default();
            eprint!("\r\x1b[K  {} {}  {last}", self.what, elapsed(self.start));
            std::io::stderr().flush().ok();
        } else if self.spoke.elapsed() >= QUIET {
            self.spoke = Instant::now();
            eprintln!("  {} ... {} so far", self.what, elapsed(self.start));
        }
    }

    fn end(&self, outcome: &str) {
        let clear = if self.moving { "\r\x1b[K" } else { "" };
        eprintln!("{clear}  {:<44} {outcome:<6} {}", self.what, elapsed(self.start));
    }
}

/// The tail of what a step has printed so far, short enough for one line.
fn last_line(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(400);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    let last = tail.split(['\n', '\r']).map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("");
    Ok(last.chars().take(60).collect())
}

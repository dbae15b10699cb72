//! A child process: its output goes to a log file, and it is terminated when its guard is dropped.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

pub struct ChildProcess {
    name: String,
    log: PathBuf,
    child: Child,
}

impl ChildProcess {
    pub fn start(name: &str, logs: &Path, command: &mut Command) -> Result<ChildProcess> {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log)?;
        // In a group of its own: Ctrl-C reaches us only, and we end the others in order.
        command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        Ok(ChildProcess { name: name.to_owned(), log, child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// An error with the end of its log when it has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("{} ended ({status})\n{}", self.name, self.log_tail())
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].iter().map(|line| format!("    {line}\n"));
        format!("  log of {}:\n{}", self.name, last.collect::<String>())
    }

    /// Asks it to end, without waiting: several end at once.
    pub fn ask_to_end(&self) {
        kill(self.process(), Signal::SIGTERM).ok();
    }

    fn process(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id fits"))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.ask_to_end();
        let asked = Instant::now();
        while asked.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // With all that it started: an agent that does not end by itself has an Envoy.
        killpg(self.process(), Signal::SIGKILL).ok();
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_alive(id: u32) -> bool {
        kill(Pid::from_raw(i32::try_from(id).unwrap()), None).is_ok()
    }

    #[test]
    fn a_process_is_terminated_with_its_guard() {
        let logs = tempfile::tempdir().unwrap();
        let process = ChildProcess::start("sleep", logs.path(), Command::new("sleep").arg("60")).unwrap();
        let id = process.child.id();
        assert!(is_alive(id));
        drop(process);
        assert!(!is_alive(id));
    }

    #[test]
    fn an_exit_is_reported_with_the_end_of_the_log() {
        let logs = tempfile::tempdir().unwrap();
        let mut process =
            ChildProcess::start("sh", logs.path(), Command::new("sh").args(["-c", "echo no port; exit 3"])).unwrap();
        process.child.wait().unwrap();
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("sh ended (exit status: 3)") && error.contains("no port"), "{error}");
    }
}

//! A program of the mesh with its log; ended when dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        Ok(Process(child.with_context(|| format!("{command:?}"))?))
    }

    /// Whether it ended well.
    pub fn stop(mut self) -> Result<bool> {
        self.ended()
    }

    fn ended(&mut self) -> Result<bool> {
        if let Some(status) = self.0.try_wait()? {
            return Ok(status.success());
        }
        kill(Pid::from_raw(i32::try_from(self.0.id())?), Signal::SIGTERM)?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
            ensure!(Instant::now() < end, "a process does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already ended, mostly.
        let _ = self.ended();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

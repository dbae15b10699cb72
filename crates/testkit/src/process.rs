//! A program under test with its log: asked to end when dropped, and killed if it does not.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::eventually_blocking;

pub struct Process(Child);

impl Process {
    /// Appends all that it prints to the log.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        Process::spawn(command.stdout(log.try_clone()?).stderr(log))
    }

    /// Its output goes where the command says.
    pub fn spawn(command: &mut Command) -> Result<Process> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Process(child.with_context(|| format!("does not start: {command:?}"))?))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.0.id())?), signal)?)
    }

    /// `None`: it still runs.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }

    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.exit_status()?.is_some())
    }

    /// Asks it to end. Returns whether it ended with success.
    pub fn stop(mut self) -> Result<bool> {
        self.terminate()
    }

    /// A leader gives its lease back, an agent takes its Envoy along.
    fn terminate(&mut self) -> Result<bool> {
        if !self.has_ended()? {
            self.signal(Signal::SIGTERM)?;
            eventually_blocking("the end of a process", || self.has_ended())?;
        }
        Ok(self.exit_status()?.is_some_and(|status| status.success()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.terminate();
        // Without effect on one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

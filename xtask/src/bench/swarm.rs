//! The load generator as a child process: one line in, one JSON line out.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::plane::ProxyTransport;
use super::size::Size;

/// A phase is over when no proxy has received anything for this long.
pub(super) const QUIET: Duration = Duration::from_secs(2);
const SHORT_QUIET: Duration = Duration::from_millis(300);
/// A phase that goes on for longer is reported as it stands.
const LIMIT: Duration = Duration::from_secs(240);

pub(super) struct Swarm {
    child: Child,
    /// `None` only while it ends.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Swarm {
    pub(super) fn start(loadgen: &Path, transport: &ProxyTransport<'_>, nodes: &Path, size: &Size) -> Result<Swarm> {
        let mut command = Command::new(loadgen);
        command.arg("swarm").arg("--nodes").arg(nodes);
        match transport {
            ProxyTransport::Plain(server) => command.arg(format!("--server={server}")),
            ProxyTransport::Secure(server, authority) => {
                command.arg(format!("--server={server}")).arg("--authority").arg(&authority.folder)
            }
        };
        command.arg(format!("--stalled={}", size.stalled)).arg(format!("--silent={}", size.silent));
        // In a group of its own: Ctrl-C reaches us only, and the phase ends in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start loadgen")?;
        let answers = BufReader::new(child.stdout.take().expect("piped above"));
        Ok(Swarm { commands: child.stdin.take(), child, answers })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn say(&mut self, line: &str) -> Result<Value> {
        let Some(commands) = &mut self.commands else { bail!("loadgen has ended") };
        writeln!(commands, "{line}").context("write to loadgen")?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            bail!("loadgen ended after {line:?}; its complaint is above");
        }
        serde_json::from_str(&answer).with_context(|| format!("loadgen answered {answer:?}"))
    }

    /// Waits until a phase is over, for expected proxies at most `wait`.
    pub(super) fn settle(&mut self, wait: Duration) -> Result<Value> {
        self.say(&format!("settle {} {} {}", wait.as_millis(), QUIET.as_millis(), LIMIT.as_millis()))
    }

    /// Waits for the end of what came after a phase had seemed to be over; sums it up.
    pub(super) fn settle_again(&mut self) -> Result<Value> {
        self.say(&format!("settle 0 {} {}", SHORT_QUIET.as_millis(), LIMIT.as_millis()))
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        drop(self.commands.take());
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

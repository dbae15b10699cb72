//! The process that holds a node's namespaces: how it is started, found again, and ended. With it the kernel ends all processes of the node.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::lifetime;
use super::node::Node;

const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    holder: i32,
    /// Process 1 of the node, by its number on this machine.
    pub(super) init: i32,
}

impl Holder {
    /// `None`: the node does not run.
    pub(super) fn find(node: Node) -> Result<Option<Holder>> {
        let Ok(text) = fs::read_to_string(node.folder()?.join("holder.pid")) else { return Ok(None) };
        let holder: i32 = text.trim().parse().context("read the number of the node's process")?;
        // Its number may be somebody else's by now.
        let command = fs::read(format!("/proc/{holder}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if !command.starts_with("unshare ") || !command.ends_with(&format!("cluster --number {node} init ")) {
            return Ok(None);
        }
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).unwrap_or_default();
        Ok(children.trim().parse().ok().map(|init| Holder { holder, init }))
    }

    pub(super) fn running(node: Node) -> Result<Holder> {
        Holder::find(node)?.with_context(|| format!("node {node} does not run; start it: cargo xtask cluster up"))
    }

    pub(super) fn start(node: Node) -> Result<Holder> {
        let folder = node.folder()?;
        let log = fs::File::create(folder.join("logs/init.log"))?;
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--mount",
            "--propagation",
            "private",
            "--net",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        unshare.arg(folder.join(lifetime::PROGRAM));
        unshare.args(["cluster", "--number", &node.to_string(), "init"]);
        // In a group of its own: Ctrl-C in the terminal does not reach it.
        let mut child = unshare.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        fs::write(folder.join("holder.pid"), child.id().to_string())?;
        let began = Instant::now();
        loop {
            if let Some(holder) = Holder::find(node)? {
                return Ok(holder);
            }
            ensure!(
                child.try_wait()?.is_none() && began.elapsed() < DEADLINE,
                "the node did not start:\n{}",
                log_tail(node)?
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command on the node: its mounts, network and processes.
    pub(super) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid", "--net", "--uts", "--"]).arg(program);
        command
    }

    /// Returns when no process of the node is left.
    pub(super) fn end(self) -> Result<()> {
        kill(Pid::from_raw(self.holder), Signal::SIGKILL).context("end the node")?;
        let began = Instant::now();
        while Path::new(&format!("/proc/{}", self.init)).exists() {
            // One that we started ourselves stays in the list until we take its exit.
            nix::sys::wait::waitpid(Pid::from_raw(self.holder), Some(nix::sys::wait::WaitPidFlag::WNOHANG)).ok();
            if began.elapsed() > DEADLINE {
                bail!("process {} of the node does not end", self.init);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

pub(super) fn log_tail(node: Node) -> Result<String> {
    let text = fs::read_to_string(node.folder()?.join("logs/init.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(20)..].join("\n"))
}

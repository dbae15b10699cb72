//! The process that holds a node's namespaces: how it is started, found again, and ended. With it the kernel ends all processes of the node.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
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
    /// `None`: the node does not run. It is found by its command line: a number in a file could be another process's by now, or be missing after
    /// a start that was killed.
    pub(super) fn find(node: Node) -> Result<Option<Holder>> {
        let line: Vec<u8> = command_line(node)?.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
        let numbers = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_holder = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line);
        let Some(holder) = numbers.into_iter().find(is_holder) else { return Ok(None) };
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).unwrap_or_default();
        Ok(children.trim().parse().ok().map(|init| Holder { holder, init }))
    }

    pub(super) fn running(node: Node) -> Result<Holder> {
        Holder::find(node)?.with_context(|| format!("node {node} does not run; start it: cargo xtask cluster up"))
    }

    pub(super) fn start(node: Node) -> Result<Holder> {
        let folder = node.folder()?;
        let log = fs::File::create(folder.join("logs/init.log"))?;
        let line = command_line(node)?;
        let mut unshare = Command::new(&line[0]);
        unshare.args(&line[1..]);
        // In a group of its own: Ctrl-C in the terminal does not reach it.
        let mut child = unshare.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
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

    pub(super) fn processes(self) -> [i32; 2] {
        [self.holder, self.init]
    }

    /// A command on the node: its mounts, network and processes.
    pub(super) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--pid", "--net", "--uts", "--"]).arg(program);
        command
    }

    pub(super) fn kill(self) -> Result<()> {
        kill(Pid::from_raw(self.holder), Signal::SIGKILL).context("end the node")
    }

    /// Returns when no process of the node is left.
    pub(super) fn end(self) -> Result<()> {
        self.kill()?;
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

fn command_line(node: Node) -> Result<Vec<OsString>> {
    let namespaces = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--net",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let program = node.folder()?.join(lifetime::PROGRAM).into_os_string();
    let number = node.to_string();
    let init = ["cluster", "--number", &number, "init"];
    Ok(namespaces.iter().map(OsString::from).chain([program]).chain(init.iter().map(OsString::from)).collect())
}

pub(super) fn log_tail(node: Node) -> Result<String> {
    let text = fs::read_to_string(node.folder()?.join("logs/init.log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(20)..].join("\n"))
}

//! Network namespaces for tests that bind foreign addresses or redirect traffic. Needs root and `ip`, `unshare`.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// Has loopback only, and lets any address be bound (ip_nonlocal_bind).
const ISOLATED: &str = "ip link set lo up \
    && echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind \
    && (echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind || true) \
    && exec \"$0\" \"$@\"";

/// `None`: namespaces can be made. Otherwise why they cannot.
pub fn missing() -> Option<String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let made = Command::new("unshare").args(["-n", "-m", "sh", "-c", ISOLATED, "true"]).output();
    match made {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!("no network namespace: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(e) => Some(format!("unshare does not start: {e}")),
    }
}

/// This test binary again, inside namespaces of its own (network and mounts) that end with it. The caller marks it by environment
/// variables.
pub fn isolated_rerun(test: &str) -> Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["-n", "-m", "sh", "-c", ISOLATED]).arg(std::env::current_exe()?);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Ok(command)
}

/// Puts files below /etc that only this process and its children see. Only inside `isolated_rerun`: elsewhere the whole host would.
/// `folder` holds them for as long as they are wanted.
pub fn provide_in_etc(folder: &Path, files: &[(&str, &str)]) -> Result<()> {
    let parents = format!("/proc/{}/ns/mnt", std::os::unix::process::parent_id());
    ensure!(
        std::fs::read_link("/proc/self/ns/mnt")? != std::fs::read_link(parents)?,
        "not in a mount namespace of its own"
    );
    let copy = folder.join("etc");
    run(&["cp", "-a", "/etc", &copy.to_string_lossy()])?;
    for (file, text) in files {
        let file = copy.join(file);
        std::fs::create_dir_all(file.parent().context("a file stands in a folder")?)?;
        std::fs::write(file, text)?;
    }
    run(&["mount", "--bind", &copy.to_string_lossy(), "/etc"])
}

/// A named namespace; deleted when dropped.
pub struct NetworkNamespace {
    pub name: String,
}

impl NetworkNamespace {
    /// Its name is `name` with the number of this process and one more: another of that name may still be going away.
    pub fn new(name: &str) -> Result<NetworkNamespace> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        run(&["ip", "netns", "add", &name])?;
        let made = NetworkNamespace { name };
        made.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(made)
    }

    pub fn run(&self, words: &[&str]) -> Result<()> {
        run(&[&["ip", "netns", "exec", &self.name], words].concat())
    }

    /// A program that will run inside. It is the process itself: signals reach it.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// A runtime on a thread of its own whose sockets are in the namespace.
    pub fn worker(&self) -> Result<NamespaceRuntime> {
        let namespace = File::open(format!("/var/run/netns/{}", self.name))?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let (entered, result) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = entered.send(setns(namespace, CloneFlags::CLONE_NEWNET));
            let _ = runtime.block_on(stopped);
        });
        result.recv()?.with_context(|| format!("cannot enter {}", self.name))?;
        Ok(NamespaceRuntime { handle, stop: Some(stop), thread: Some(thread) })
    }
}

/// Runs what it is given inside a namespace; all of it ends when this is dropped.
pub struct NamespaceRuntime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NamespaceRuntime {
    pub fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(work)
    }
}

impl Drop for NamespaceRuntime {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = run(&["ip", "netns", "delete", &self.name]);
    }
}

fn run(words: &[&str]) -> Result<()> {
    let out = Command::new(words[0]).args(&words[1..]).output().with_context(|| words.join(" "))?;
    ensure!(out.status.success(), "{}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}

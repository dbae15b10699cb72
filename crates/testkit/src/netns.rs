//! Network namespaces for tests that bind foreign addresses or redirect traffic. Needs root and `ip`, `unshare`.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Loopback only, and any address can be bound, whether the host has it or not.
const LONELY: &str = "ip link set lo up \
    && echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind \
    && (echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind || true) \
    && exec \"$0\" \"$@\"";

/// `None`: namespaces can be made. Otherwise why they cannot.
pub fn missing() -> Option<String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let made = Command::new("unshare").args(["-n", "sh", "-c", LONELY, "true"]).output();
    match made {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!("no network namespace: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(e) => Some(format!("unshare does not start: {e}")),
    }
}

/// This test binary again, inside a namespace of its own that ends with it. The caller marks it by environment variables.
pub fn lonely_rerun(test: &str) -> Result<Command> {
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", LONELY]).arg(std::env::current_exe()?);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    Ok(command)
}

/// A named namespace; deleted when dropped.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(name: String) -> Result<Namespace> {
        run(&["ip", "netns", "add", &name])?;
        let made = Namespace { name };
        made.run(&["ip", "link", "set", "lo", "up"])?;
        Ok(made)
    }

    pub fn run(&self, words: &[&str]) -> Result<()> {
        run(&[&["ip", "netns", "exec", &self.name], words].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run(&["ip", "netns", "delete", &self.name]);
    }
}

fn run(words: &[&str]) -> Result<()> {
    let out = Command::new(words[0]).args(&words[1..]).output().with_context(|| words.join(" "))?;
    ensure!(out.status.success(), "{}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}

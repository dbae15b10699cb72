//! What a node needs of this machine, and what of it is missing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::Uid;

use super::programs;
use crate::{image, progress};

/// A program that must be there, and the Debian package that has it.
const NEEDED: [(&str, &str); 12] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("iptables", "iptables"),
    ("xtables-legacy-multi", "iptables"),
    ("conntrack", "conntrack"),
    ("busybox", "busybox-static"),
    ("ip", "iproute2"),
    ("openssl", "openssl"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
];
const NETWORK: (&str, &str) = ("/usr/lib/cni/bridge", "containernetworking-plugins");

/// `None`: a node can run here, or be set up. Otherwise why not, and what to do.
pub(super) fn unfit() -> Option<String> {
    let reason = if !cfg!(target_os = "linux") {
        "a node needs Linux: it is made of namespaces and control groups"
    } else if !Uid::effective().is_root() {
        "a node needs root: it makes namespaces, mounts and network links"
    } else if !Path::new("/sys/fs/cgroup/memory").exists() && !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        "a node needs control groups, and /sys/fs/cgroup has none"
    } else {
        return None;
    };
    Some(format!("{reason}; with a cluster that is there, such as kind's, use --kubeconfig FILE"))
}

/// Debian packages whose programs are not here.
fn missing_packages() -> Vec<&'static str> {
    let programs = NEEDED.iter().filter(|(program, _)| image::on_path(program).is_err()).map(|(_, package)| *package);
    let network = Some(NETWORK.1).filter(|_| !Path::new(NETWORK.0).exists());
    let mut missing: Vec<_> = programs.chain(network).collect();
    missing.dedup();
    missing
}

/// Fails with everything that is missing at once.
pub(super) fn check() -> Result<()> {
    if let Some(reason) = unfit() {
        bail!("{reason}");
    }
    let packages = missing_packages();
    if !packages.is_empty() {
        bail!("Debian packages are missing: {}; cargo xtask cluster setup installs them", packages.join(" "));
    }
    match programs::missing()?[..] {
        [] => Ok(()),
        [first, ..] => bail!("there is no {first} yet; cargo xtask cluster setup builds it"),
    }
}

/// Installs what is missing of the distribution, where that is Debian's.
pub(super) fn install_packages() -> Result<()> {
    let missing = missing_packages();
    if missing.is_empty() {
        return Ok(());
    }
    if image::on_path("apt-get").is_err() {
        bail!("install what Debian has in {}", missing.join(", "));
    }
    let install = || {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--yes", "--no-install-recommends"]).args(&missing);
        // The distribution would start its own container runtime; the node has one of its own.
        apt.envs([("DEBIAN_FRONTEND", "noninteractive"), ("RUNLEVEL", "1")]);
        apt
    };
    if lists_are_there() && progress::step("apt-get install", &mut install()).is_ok() {
        return Ok(());
    }
    progress::step("apt-get update", Command::new("apt-get").arg("update"))?;
    progress::step("apt-get install", &mut install())
}

fn lists_are_there() -> bool {
    fs::read_dir("/var/lib/apt/lists").is_ok_and(|lists| lists.count() > 3)
}

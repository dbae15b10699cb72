//! A node from nothing to ready, and back to nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::holder::{self, Holder};
use super::init::run_command;
use super::node::Node;
use super::{credentials, machine, programs};
use crate::image::{self, single};
use crate::progress;

const DEADLINE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(100);
const CGROUPS: &str = "/sys/fs/cgroup";
/// This program, in the node's folder.
pub(super) const PROGRAM: &str = "xtask";

pub(super) fn up(node: Node) -> Result<()> {
    machine::check()?;
    if Holder::find(node)?.is_some() {
        bail!("node {node} runs already; another one: --number; an end to this one: cargo xtask cluster down");
    }
    remove_rest(node)?;
    eprintln!("cluster: node {node}");
    let started = progress::own_step("certificates, configuration and images", || files(node))
        .and_then(|()| progress::own_step("namespaces and network", || start(node)))
        .and_then(|()| progress::own_step("Kubernetes: API server, node and DNS", || ready(node)));
    if let Err(error) = started {
        let log = holder::log_tail(node)?;
        down(node)?;
        return Err(error.context(format!("node {node} did not start\n{log}")));
    }
    Ok(())
}

/// Leaves nothing: also of a node whose process was killed, or that never came up.
pub(super) fn down(node: Node) -> Result<()> {
    if let Some(holder) = Holder::find(node)? {
        holder.end()?;
    }
    remove_rest(node)
}

fn files(node: Node) -> Result<()> {
    let folder = node.folder()?;
    for part in ["logs", "cni", "etc", "kernel", "var-lib", "var-log", "registries/_default"] {
        fs::create_dir_all(folder.join(part)).with_context(|| format!("make a folder in {}", folder.display()))?;
    }
    let write =
        |name: &str, template: &str| -> Result<()> { Ok(fs::write(folder.join(name), node.filled(template)?)?) };
    write("containerd.toml", include_str!("../../cluster/containerd.toml"))?;
    write("registries/_default/hosts.toml", include_str!("../../cluster/hosts.toml"))?;
    write("kubelet.yaml", include_str!("../../cluster/kubelet.yaml"))?;
    write("kube-proxy.yaml", include_str!("../../cluster/kube-proxy.yaml"))?;
    write("cni/10-bridge.conflist", include_str!("../../cluster/bridge.conflist"))?;
    write("dns.yaml", include_str!("../../cluster/dns.yaml"))?;
    // Of the names outside of the cluster none is known.
    write("no-resolv.conf", "")?;
    credentials::write(node)?;
    // The node goes on with this program, whatever is built meanwhile.
    fs::copy(std::env::current_exe().context("find this program")?, folder.join(PROGRAM))?;
    let images = [single("pause", &programs::path("pause")?)?, single("coredns", &programs::path("coredns")?)?];
    image::write(&images, &folder.join("base.tar")).map(|_| ())
}

fn start(node: Node) -> Result<()> {
    for hierarchy in hierarchies() {
        make_group(&hierarchy, &hierarchy.join(node.name()))?;
    }
    let holder = Holder::start(node)?;
    weigh(node, holder)?;
    let ip = |words: &str| run_command(Command::new("ip").args(words.split(' ')));
    let link = node.name();
    ip(&format!("link add {link} type veth peer name eth0 netns {}", holder.init))?;
    ip(&format!("addr add {}/24 dev {link}", node.gateway()))?;
    ip(&format!("link set {link} up"))?;
    for network in [node.pods(), node.services(), node.balancers()] {
        ip(&format!("route add {network}.0/24 via {} dev {link}", node.address()))?;
    }
    Ok(())
}

fn ready(node: Node) -> Result<()> {
    let folder = node.folder()?;
    until(node, "the API server", |kubectl| kubectl.args(["get", "--raw", "/readyz"]))?;
    until(node, "the definition of DNS", |kubectl| kubectl.arg("apply").arg("-f").arg(folder.join("dns.yaml")))?;
    until(node, "the node", |kubectl| kubectl.args(["wait", "--for=condition=Ready", "node/node", "--timeout=5s"]))?;
    until(node, "DNS", |kubectl| {
        kubectl.args(["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=5s"])
    })
}

fn until(node: Node, what: &str, question: impl Fn(&mut Command) -> &mut Command) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = run_command(question(&mut kubectl(&node.kubeconfig()?)?));
        let Err(error) = answer else { return Ok(()) };
        ensure!(Holder::find(node)?.is_some(), "the node ended while waiting for {what}");
        if began.elapsed() > DEADLINE {
            return Err(error.context(format!("waited {} s for {what}", DEADLINE.as_secs())));
        }
        std::thread::sleep(PAUSE);
    }
}

pub(super) fn kubectl(kubeconfig: &Path) -> Result<Command> {
    // Where Kubernetes was not built, that of a user who has a cluster.
    let built = programs::path("kubectl")?;
    let mut kubectl = Command::new(if built.exists() { built } else { "kubectl".into() });
    // No configuration of the user decides which cluster is meant.
    kubectl.env("KUBECONFIG", kubeconfig);
    Ok(kubectl)
}

/// What may be left of a node whose processes are gone: the kernel removed its mounts and networks.
fn remove_rest(node: Node) -> Result<()> {
    let name = node.name();
    let began = Instant::now();
    // The link goes with the namespace of its other end, or was never moved there.
    let link = Path::new("/sys/class/net").join(&name);
    while link.exists() {
        if let Err(error) = run_command(Command::new("ip").args(["link", "delete", &name])) {
            ensure!(!link.exists() || began.elapsed() < DEADLINE, "{error:#}");
        }
    }
    for group in hierarchies().map(|hierarchy| hierarchy.join(&name)) {
        // A group with a process that is just ending cannot be removed yet.
        while group.exists() && remove_group(&group).is_err() {
            ensure!(began.elapsed() < DEADLINE, "the control group {} has processes that do not end", group.display());
            std::thread::sleep(PAUSE);
        }
    }
    let folder = node.folder()?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    Ok(())
}

/// What is left of a node: processes, control groups, its link, mounts, its folder. Looks wider than `down` does.
pub(super) fn traces(node: Node) -> Result<Vec<String>> {
    let (name, folder) = (node.name(), node.folder()?);
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let top: Vec<_> = below(CGROUPS.into()).filter(|path| path.is_dir()).collect();
    let groups = top.iter().flat_map(|dir| below(dir.clone())).chain(top.iter().cloned());
    let named = groups.filter(|path| path.file_name().is_some_and(|file| *file == *name));
    let others = [Path::new("/sys/class/net").join(&name), folder.clone()].into_iter().filter(|path| path.exists());
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mounts = mounts.lines().filter(|line| line.contains(&folder.display().to_string())).map(str::to_owned);
    let inside = |process: &PathBuf| {
        let grouped =
            fs::read_to_string(process.join("cgroup")).is_ok_and(|groups| groups.contains(&format!("/{name}/")));
        let started = fs::read_link(process.join("exe")).is_ok_and(|program| program.starts_with(&folder));
        grouped || started
    };
    let processes = below("/proc".into()).filter(inside);
    Ok(named.chain(others).chain(processes).map(|path| path.display().to_string()).chain(mounts).collect())
}

/// Of version 1 there is one for each controller, of version 2 one for all, which stands beside the others where both are in use.
fn hierarchies() -> impl Iterator<Item = PathBuf> {
    let root = PathBuf::from(CGROUPS);
    let controllers: Vec<_> = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let below = controllers.into_iter().filter(move |path| !is_group(&root) && is_group(path));
    below.chain(Some(PathBuf::from(CGROUPS)).filter(|root| is_group(root)))
}

fn is_group(folder: &Path) -> bool {
    folder.join("cgroup.procs").exists()
}

fn make_group(hierarchy: &Path, group: &Path) -> Result<()> {
    fs::create_dir_all(group).with_context(|| format!("make the control group {}", group.display()))?;
    // A new group of this controller has no processor and no memory, and nothing can run in it.
    for setting in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(all) = fs::read(hierarchy.join(setting)) {
            fs::write(group.join(setting), all).with_context(|| format!("set {setting} of {}", group.display()))?;
        }
    }
    Ok(())
}

/// A group weighs as much as one thread that is in none: beside a build all pods together would get next to nothing, and names would be looked up
/// too late. So the node weighs as much as all processors, and its own parts are a group beside its pods, as on a machine of its own.
fn weigh(node: Node, holder: Holder) -> Result<()> {
    const OF_A_PROCESSOR: usize = 1024;
    let processors = std::thread::available_parallelism().context("count the processors")?.get();
    for hierarchy in hierarchies().filter(|hierarchy| hierarchy.join("cpu.shares").exists()) {
        let group = hierarchy.join(node.name());
        fs::write(group.join("cpu.shares"), (OF_A_PROCESSOR * processors).to_string())
            .with_context(|| format!("set the weight of {}", group.display()))?;
        let parts = group.join("parts");
        make_group(&group, &parts)?;
        for process in holder.processes() {
            fs::write(parts.join("cgroup.procs"), process.to_string())
                .with_context(|| format!("move process {process} into {}", parts.display()))?;
        }
    }
    Ok(())
}

/// With those below it, which go first. The files in a group are the kernel's.
fn remove_group(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    /// /var/lib and /run are the node's own, and go with it; all other folders are the machine's.
    #[test]
    fn containerd_writes_into_folders_of_the_node_only() {
        let config = include_str!("../../cluster/containerd.toml");
        let value = |key: &str| config.lines().find_map(|line| line.strip_prefix(key)).expect(key);
        for key in ["root = ", "state = ", "address = ", "path = "] {
            let path = value(key).trim_matches('"');
            assert!(path.starts_with("/var/lib/") || path.starts_with("/run/"), "{key}{path}");
        }
    }
}

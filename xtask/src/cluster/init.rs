//! Process 1 of a node's namespaces: mounts, network, the parts of Kubernetes, each started again when it ends. When this process ends, the
//! kernel ends all others of the node.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::node::Node;
use super::{credentials, programs};

const PAUSE: Duration = Duration::from_millis(50);
/// Between two starts of a part that ends at once.
const RESTART: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// What kubelet sets for the whole machine. It finds them so already, by files of the node's own in their place.
const KERNEL: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

pub(super) fn run(node: Node) -> Result<()> {
    let folder = node.folder()?;
    mounts(node, &folder)?;
    network(node)?;
    let mut parts = Parts { node, running: BTreeMap::new(), ended: Vec::new() };
    for name in ["etcd", "containerd", "kube-apiserver"] {
        parts.start(name)?;
    }
    until("the API server", || answers(node))?;
    until("containerd", || run_quietly(Command::new("ctr").arg("version")))?;
    let archive = folder.join("base.tar");
    run_command(Command::new("ctr").args(["-n", "k8s.io", "images", "import"]).arg(archive))?;
    for name in ["kube-controller-manager", "kube-scheduler", "registry", "kubelet", "kube-proxy", "balancer"] {
        parts.start(name)?;
    }
    parts.supervise()
}

fn mounts(node: Node, folder: &Path) -> Result<()> {
    let bind = |from: &Path, to: &Path| run_command(Command::new("mount").arg("--bind").arg(from).arg(to));
    mount("--make-rshared /")?;
    mount("-t tmpfs -o mode=755 tmpfs /run")?;
    fs::create_dir_all("/run/lock")?;
    for (own, at) in [("var-lib", "/var/lib"), ("var-log", "/var/log")] {
        bind(&folder.join(own), Path::new(at))?;
    }
    // /etc of the machine gets no folder: what the node adds is in memory.
    let etc = folder.join("etc");
    mount(&format!("-t tmpfs -o mode=755 tmpfs {}", etc.display()))?;
    let (upper, work) = (etc.join("upper"), etc.join("work"));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let layers = format!("lowerdir=/etc,upperdir={},workdir={}", upper.display(), work.display());
    mount(&format!("-t overlay -o {layers} overlay /etc"))?;
    fs::create_dir_all("/etc/cni/net.d")?;
    bind(&folder.join("cni"), Path::new("/etc/cni/net.d"))?;
    fs::remove_file("/etc/resolv.conf").ok();
    fs::write("/etc/resolv.conf", format!("nameserver {}\nsearch svc.cluster.local cluster.local\n", node.dns()))?;
    for (name, value) in KERNEL {
        let setting = Path::new("/proc/sys").join(name);
        if setting.exists() {
            let own = folder.join("kernel").join(name.replace('/', "."));
            fs::write(&own, format!("{value}\n"))?;
            bind(&own, &setting)?;
        }
    }
    Ok(())
}

/// The link is made from outside, and appears here.
fn network(node: Node) -> Result<()> {
    run_command(Command::new("hostname").arg("node"))?;
    ip("link set lo up")?;
    until("the network link", || run_quietly(Command::new("ip").args(["link", "show", "eth0"])))?;
    ip(&format!("addr add {}/24 dev eth0", node.address()))?;
    ip("link set eth0 up")?;
    ip(&format!("route add default via {}", node.gateway()))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("switch forwarding on in the node")?;
    // Where the kernel has no such setting, bridged packets do not pass iptables: Services of a pod's own node would answer all the same.
    fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1").ok();
    Ok(())
}

fn answers(node: Node) -> bool {
    let mut kubectl = Command::new(programs::path("kubectl").unwrap_or_default());
    let access = [format!("--server={}", node.api()), format!("--token={}", credentials::ADMIN_TOKEN)];
    run_quietly(kubectl.args(access).args(["--insecure-skip-tls-verify", "get", "--raw", "/readyz"]))
}

struct Parts {
    node: Node,
    running: BTreeMap<i32, &'static str>,
    /// Which ended, and when they are to be started again.
    ended: Vec<(&'static str, Instant)>,
}

impl Parts {
    fn start(&mut self, name: &'static str) -> Result<()> {
        let folder = self.node.folder()?;
        let mut command = command(self.node, name, &folder)?;
        let log = File::options().create(true).append(true).open(folder.join("logs").join(format!("{name}.log")))?;
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // The API server is on this machine.
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(variable);
        }
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        let id = child.id();
        fs::write(Path::new("/run").join(format!("{name}.pid")), id.to_string())?;
        self.running.insert(i32::try_from(id)?, name);
        Ok(())
    }

    /// Takes the exit of every process of the node, whoever started it, as process 1 must.
    fn supervise(mut self) -> Result<()> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => std::thread::sleep(PAUSE),
                Ok(status) => {
                    if let Some(name) = status.pid().and_then(|pid| self.running.remove(&pid.as_raw())) {
                        eprintln!("{name} ended ({status:?}) and is started again");
                        self.ended.push((name, Instant::now() + RESTART));
                    }
                }
            }
            let due: Vec<_> = self.ended.extract_if(.., |(_, at)| *at <= Instant::now()).collect();
            for (name, _) in due {
                self.start(name)?;
            }
        }
    }
}

fn command(node: Node, name: &str, folder: &Path) -> Result<Command> {
    let program = match name {
        "etcd" => programs::etcd()?,
        "containerd" => "containerd".into(),
        "registry" | "balancer" => std::env::current_exe().context("find this program")?,
        _ => programs::path(name)?,
    };
    let mut command = Command::new(program);
    let kubeconfig = format!("--kubeconfig={}/{name}.kubeconfig", folder.display());
    match name {
        "etcd" => command.args(["--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn"]),
        "containerd" => command.arg("--config").arg(folder.join("containerd.toml")),
        "kube-apiserver" => command.args(api_server(node)),
        "kube-controller-manager" => command.arg(kubeconfig).args(controllers(node)),
        "kube-scheduler" => command.arg(kubeconfig).arg("--leader-elect=false"),
        "kubelet" => command
            .args([&kubeconfig, "--config=kubelet.yaml", "--hostname-override=node"])
            .arg(format!("--node-ip={}", node.address())),
        "kube-proxy" => command.arg("--config=kube-proxy.yaml"),
        "registry" | "balancer" => command.args(["cluster", "--number", &node.to_string(), name]),
        _ => bail!("there is no part {name}"),
    };
    Ok(command)
}

/// Files are relative to the node's folder.
fn api_server(node: Node) -> Vec<String> {
    let address = node.address();
    let mut flags =
        vec![format!("--advertise-address={address}"), format!("--service-cluster-ip-range={}.0/24", node.services())];
    let fixed = [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--tls-cert-file=pki/apiserver.crt",
        "--tls-private-key-file=pki/apiserver.key",
        "--client-ca-file=pki/ca.crt",
        "--token-auth-file=pki/tokens",
        "--kubelet-client-certificate=pki/kubelet-client.crt",
        "--kubelet-client-key=pki/kubelet-client.key",
        "--kubelet-certificate-authority=pki/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=pki/accounts.key",
        "--service-account-signing-key-file=pki/accounts.key",
        "--requestheader-client-ca-file=pki/ca.crt",
        "--requestheader-allowed-names=aggregator",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--proxy-client-cert-file=pki/aggregator.crt",
        "--proxy-client-key-file=pki/aggregator.key",
        "--enable-aggregator-routing=true",
    ];
    flags.extend(fixed.map(str::to_owned));
    flags
}

fn controllers(node: Node) -> Vec<String> {
    let mut flags = vec![
        format!("--cluster-cidr={}.0/24", node.pods()),
        format!("--service-cluster-ip-range={}.0/24", node.services()),
    ];
    let fixed = [
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--service-account-private-key-file=pki/accounts.key",
        "--root-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        "--allocate-node-cidrs=true",
        "--node-cidr-mask-size=24",
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
    ];
    flags.extend(fixed.map(str::to_owned));
    flags
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !holds() {
        ensure!(began.elapsed() < DEADLINE, "waited {} s for {what}", DEADLINE.as_secs());
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn mount(words: &str) -> Result<()> {
    run_command(Command::new("mount").args(words.split(' ')))
}

fn ip(words: &str) -> Result<()> {
    run_command(Command::new("ip").args(words.split(' ')))
}

fn run_quietly(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

pub(super) fn run_command(command: &mut Command) -> Result<()> {
    let out = command.output().with_context(|| format!("run {}", command.get_program().display()))?;
    let words: Vec<_> = command.get_args().map(|word| word.display().to_string()).collect();
    let complaint = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{} {}: {}", command.get_program().display(), words.join(" "), complaint.trim());
    Ok(())
}

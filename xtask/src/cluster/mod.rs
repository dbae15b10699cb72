//! `cargo xtask cluster`: a real Kubernetes node on this machine, made of namespaces as kind's, without a container engine: kubelet, containerd
//! and runc with real pods, Services, DNS and addresses of load balancers.

mod balancer;
mod credentials;
mod holder;
mod init;
mod lifetime;
mod machine;
mod node;
mod programs;
mod registry;
mod status;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Subcommand, ValueEnum};

use self::holder::Holder;
use self::machine::unfit;
pub(crate) use self::node::Node;
use crate::image::{self, Which};
use crate::progress::{self, elapsed};
use crate::project;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which node, 0 to 9; each is a cluster of its own
    #[arg(long, default_value = "0")]
    number: Node,
    /// Another cluster, for `kubectl` and `status`
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Install the Debian packages that are missing, and build Kubernetes and CoreDNS into the cache folder (once)
    Setup,
    /// Start a node; returns when it is ready and DNS answers
    Up,
    /// Stop the node and remove every trace of it, also of one that was killed
    Down,
    /// What runs, with memory and processor time
    Status,
    /// The path of the administrator's kubeconfig
    Kubeconfig,
    /// kubectl of the cluster's version
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Give images to the node: archives, or images of ours by name (meltemi, proxy, agent-proxy, app)
    Image {
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// A command on the node, a shell if none is given
    Node {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// End one part of the node, such as kubelet or kube-apiserver; it is started again at once
    Restart { part: String },
    #[command(hide = true)]
    Init,
    #[command(hide = true)]
    Registry,
    #[command(hide = true)]
    Balancer,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let node = args.number;
    if let Some(file) = &args.kubeconfig {
        return match &args.command {
            ClusterCommand::Kubectl { words } => kubectl(file, words),
            ClusterCommand::Status => kubectl(file, &["get", "nodes,pods", "-A", "-o", "wide"].map(str::to_owned)),
            _ => bail!(
                "with --kubeconfig there are `kubectl` and `status`: a cluster that is there is not ours to change"
            ),
        };
    }
    match &args.command {
        ClusterCommand::Setup => setup(),
        ClusterCommand::Up => {
            let start = Instant::now();
            lifetime::up(node)?;
            println!("node {node} is ready ({}): export KUBECONFIG={}", elapsed(start), node.kubeconfig()?.display());
            Ok(())
        }
        ClusterCommand::Down => lifetime::down(node),
        ClusterCommand::Status => {
            Holder::running(node)?;
            status::print(node)
        }
        ClusterCommand::Kubeconfig => {
            println!("{}", node.kubeconfig()?.display());
            Ok(())
        }
        ClusterCommand::Kubectl { words } => {
            Holder::running(node)?;
            kubectl(&node.kubeconfig()?, words)
        }
        ClusterCommand::Image { images } => give_images(node, images),
        ClusterCommand::Node { words } => on_node(node, words),
        ClusterCommand::Restart { part } => restart(node, part),
        ClusterCommand::Init => init::run(node),
        ClusterCommand::Registry => registry::run(),
        ClusterCommand::Balancer => balancer::run(node),
    }
}

/// Says nothing and takes no time when all is there.
pub(crate) fn setup() -> Result<()> {
    if let Some(reason) = unfit() {
        bail!("{reason}");
    }
    machine::install_packages()?;
    programs::build()
}

/// A node that goes with its guard. One that runs already under this number is left alone.
pub(crate) struct RunningNode {
    node: Node,
}

impl RunningNode {
    pub(crate) fn start(node: Node) -> Result<RunningNode> {
        lifetime::up(node)?;
        Ok(RunningNode { node })
    }

    /// As somebody would who has only `kill -9`; what is left goes with the guard.
    pub(crate) fn kill(&self) -> Result<()> {
        Holder::running(self.node)?.kill()
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        if let Err(error) = lifetime::down(self.node) {
            eprintln!("node {}: {error:#}", self.node);
        }
    }
}

/// Why no node can be started at once; `None`: one can.
pub(crate) fn unready() -> Option<String> {
    machine::check().err().map(|error| format!("{error:#}"))
}

/// What a node that is down left behind; nothing, if all is well.
pub(crate) fn traces(node: Node) -> Result<Vec<String>> {
    lifetime::traces(node)
}

/// kubectl for scripts of ours.
pub(crate) fn kubectl_command(kubeconfig: &Path) -> Result<Command> {
    lifetime::kubectl(kubeconfig)
}

/// Its exit code is ours.
fn kubectl(kubeconfig: &Path, words: &[String]) -> Result<()> {
    let status = lifetime::kubectl(kubeconfig)?.args(words).status().context("run kubectl")?;
    std::process::exit(status.code().unwrap_or(1))
}

fn on_node(node: Node, words: &[String]) -> Result<()> {
    let (program, rest) = words.split_first().map_or(("sh", &[][..]), |(program, rest)| (program.as_str(), rest));
    let status = Holder::running(node)?.command(program).args(rest).status().context("run nsenter")?;
    std::process::exit(status.code().unwrap_or(1))
}

pub(crate) fn restart(node: Node, part: &str) -> Result<()> {
    let mut end = Holder::running(node)?.command("sh");
    let script = "kill -9 \"$(cat /run/\"$0\".pid)\"";
    let ended = end.args(["-c", script, part]).output().context("run nsenter")?;
    ensure!(
        ended.status.success(),
        "no part {part} runs on node {node}: {}",
        String::from_utf8_lossy(&ended.stderr).trim()
    );
    Ok(())
}

fn give_images(node: Node, images: &[String]) -> Result<()> {
    let holder = Holder::running(node)?;
    for given in images {
        let Ok(which) = Which::from_str(given, false) else {
            ensure!(
                Path::new(given).is_file(),
                "{given} is neither an archive nor one of meltemi, proxy, agent-proxy and app"
            );
            import(holder, &std::fs::canonicalize(given)?)?;
            continue;
        };
        let name = format!("meltemi:{}", env!("CARGO_PKG_VERSION"));
        give(node, &[which.image(&name, &project::meltemi()?)?])?;
    }
    Ok(())
}

/// Makes images and gives them to the node.
pub(crate) fn give(node: Node, images: &[image::Image]) -> Result<()> {
    let holder = Holder::running(node)?;
    let archive = node.folder()?.join("given.tar");
    let names: Vec<_> = images.iter().map(|image| image.name.as_str()).collect();
    progress::own_step(&format!("images {}", names.join(", ")), || {
        image::write(images, &archive)?;
        import(holder, &archive)
    })?;
    std::fs::remove_file(archive).context("remove an archive that was given to the node")
}

fn import(holder: Holder, archive: &Path) -> Result<()> {
    init::run_command(holder.command("ctr").args(["-n", "k8s.io", "images", "import"]).arg(archive))
}

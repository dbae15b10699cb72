//! `cargo xtask demo --kubernetes`: the shop on a real cluster: Meltemi from its chart, pods with injected sidecars, a gateway with an address
//! outside. When it is dropped, all of it is gone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cluster::{self, Node, RunningNode};
use crate::image::Which;
use crate::reference::Reference;
use crate::{helm, progress, project, setup};
use shop::{http, output};

/// Images are in the node already; this is for pods of an overloaded machine.
const DEADLINE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(100);
pub(super) const HOST: &str = "shop.example.com";
/// Where the images of a node are taken from: by their short names.
const HUB: &str = "global.hub=docker.io/library,global.tag=local";

pub(super) struct ShopCluster {
    pub(super) kubeconfig: PathBuf,
    /// The gateway, from outside of the cluster.
    pub(super) ingress: SocketAddr,
    stopped: Arc<AtomicBool>,
    /// `None`: the cluster was there before, and stays.
    node: Option<RunningNode>,
}

/// Where the shop is to run.
pub(super) enum Place {
    /// A node of our own, started for it.
    Node(Node),
    /// A cluster that is there, and has the images.
    Kubeconfig(PathBuf),
}

impl ShopCluster {
    pub(super) fn start(place: Place, program: Option<PathBuf>) -> Result<ShopCluster> {
        let tools = setup::tools()?;
        helm::setup(&tools.python)?;
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).context("listen for Ctrl-C")?;
        }
        let (kubeconfig, node) = match place {
            Place::Kubeconfig(file) => (file, None),
            Place::Node(node) => {
                cluster::setup()?;
                let program = program.map_or_else(project::meltemi, Ok)?;
                (node.kubeconfig()?, Some(own_node(node, &program)?))
            }
        };
        let ingress = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut shop = ShopCluster { kubeconfig, ingress, stopped, node };
        eprintln!("demo:");
        progress::own_step("Istio's kinds", || shop.kinds())?;
        progress::own_step("helm install istiod deploy/helm/meltemi", || shop.install())?;
        progress::own_step("kubectl apply -f examples/shop-kubernetes", || shop.open())?;
        Ok(shop)
    }

    fn kinds(&self) -> Result<()> {
        let kinds = Reference::kinds_file()?;
        output(self.kubectl()?.args(["apply", "--server-side", "-f"]).arg(kinds))?;
        output(self.kubectl()?.args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]))?;
        Ok(())
    }

    fn install(&self) -> Result<()> {
        let mut helm = Command::new(helm::program()?);
        helm.env("KUBECONFIG", &self.kubeconfig).args(["upgrade", "--install", "istiod"]);
        helm.arg(project::root().join("deploy/helm/meltemi"));
        helm.args(["-n", "istio-system", "--create-namespace", "--wait", "--timeout=3m", "--set", HUB]);
        output(&mut helm).map(|_| ())
    }

    fn open(&mut self) -> Result<()> {
        let folder = project::root().join("examples/shop-kubernetes");
        // The namespace comes first, whatever the order of the files.
        for path in [folder.join("namespace.yaml"), folder] {
            output(self.kubectl()?.arg("apply").arg("-f").arg(path))?;
        }
        let address = self.until("an address of the gateway", || {
            let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
            output(self.kubectl()?.args(["-n", "shop", "get", "service", "ingress", "-o", path]))?
                .parse()
                .context("read the address of the gateway")
        })?;
        self.ingress = SocketAddr::new(address, 80);
        self.until("the shop to answer", || self.ask("/")).map(|_| ())
    }

    pub(super) fn kubectl(&self) -> Result<Command> {
        cluster::kubectl_command(&self.kubeconfig)
    }

    pub(super) fn ask(&self, path: &str) -> Result<String> {
        http::get(self.ingress, HOST, path)
    }

    pub(super) fn apply(&self, file: &Path) -> Result<()> {
        output(self.kubectl()?.arg("apply").arg("-f").arg(file)).map(|_| ())
    }

    /// Asks until there is an answer. Ends early when somebody pressed Ctrl-C.
    pub(super) fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let answer = ask();
            if self.stopped.load(Ordering::Relaxed) {
                bail!("stopped while waiting for {what}");
            }
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if start.elapsed() > DEADLINE => {
                    let pods = output(self.kubectl()?.args(["get", "pods", "-A"])).unwrap_or_default();
                    return Err(error.context(format!("waited {} s for {what}\n{pods}", DEADLINE.as_secs())));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    pub(super) fn wait_for_stop(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for ShopCluster {
    fn drop(&mut self) {
        if self.node.is_some() {
            return;
        }
        let deleted = self.kubectl().and_then(|mut kubectl| output(kubectl.args(["delete", "namespace", "shop"])));
        let removed = helm::program().and_then(|helm| {
            let mut uninstall = Command::new(helm);
            uninstall.env("KUBECONFIG", &self.kubeconfig).args(["uninstall", "istiod", "-n", "istio-system", "--wait"]);
            output(&mut uninstall)
        });
        for error in [deleted.err(), removed.err()].into_iter().flatten() {
            eprintln!("demo: {error:#}");
        }
    }
}

/// With everything that the shop is made of.
fn own_node(node: Node, program: &Path) -> Result<RunningNode> {
    let running = RunningNode::start(node)?;
    let control_plane = Which::Meltemi.image("meltemi:local", program)?;
    cluster::give(node, &[control_plane, Which::Proxy.image("", program)?, Which::App.image("", program)?])?;
    Ok(running)
}

//! The running demo: control plane, apps, agents with their Envoys, and the folder they live in. When it is dropped, all of it is gone.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::pods::{self, CART_V2, FRONT, PODS, Pod, SUPPLIER};
use crate::process::ChildProcess;
use crate::step::step;
use crate::{Shop, files, http, port, tries};

/// Long enough for four Envoys to start on two busy cores.
const DEADLINE: Duration = Duration::from_secs(60);

/// A name in the certificate of the secure port.
const SERVER_NAME: &str = "istiod.istio-system.svc";

pub struct OpenShop {
    pub(crate) meltemi: PathBuf,
    /// The folder that is served. The user may edit it: it is a copy.
    pub(crate) live: PathBuf,
    /// Files that are not served yet.
    pub(crate) later: PathBuf,
    pub(crate) monitoring: SocketAddr,
    xds: SocketAddr,
    envoy: PathBuf,
    processes: Vec<ChildProcess>,
    stopped: Arc<AtomicBool>,
    // Last, so that it goes when no process writes to it any more.
    work: TempDir,
}

impl OpenShop {
    pub(crate) fn start(shop: &Shop) -> Result<OpenShop> {
        eprintln!("demo:");
        for address in PODS.iter().flat_map(Pod::addresses).chain([SUPPLIER.app_address()]) {
            pods::listener(address)?;
        }
        let mut mesh = OpenShop::new(shop)?;
        step("start the apps", || PODS.into_iter().chain([SUPPLIER]).try_for_each(Pod::start_app))?;
        step("start the control plane", || mesh.start_control_plane())?;
        step("start four agents, each with an Envoy", || mesh.start_proxies())?;
        step("wait for certificates and answers", || {
            PODS.iter().try_for_each(|pod| {
                let what = format!("{} to be ready", pod.proxy());
                mesh.until(&what, || http::get(pod.admin(), "admin", "/ready")).map(|_| ())
            })?;
            mesh.until("the shop to answer", || http::get(FRONT.ingress(), FRONT.app, "/")).map(|_| ())
        })?;
        Ok(mesh)
    }

    fn new(shop: &Shop) -> Result<OpenShop> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).context("listen for Ctrl-C")?;
        }
        let mut work = tempfile::Builder::new().prefix("meltemi-demo-").tempdir().context("make the work folder")?;
        work.disable_cleanup(shop.keep);
        let path = |name: &str| work.path().join(name);
        let (live, later) = (path("shop"), path("shop-later"));
        files::write(&files::LIVE, &live)?;
        files::write(&files::LATER, &later)?;
        for folder in ["logs", "tokens"] {
            fs::create_dir(path(folder))?;
        }
        Ok(OpenShop {
            meltemi: shop.program.clone(),
            live,
            later,
            monitoring: port::reserve_usual(15014)?,
            xds: port::reserve_usual(15012)?,
            envoy: shop.envoy.clone(),
            processes: Vec::new(),
            stopped,
            work,
        })
    }

    fn start_control_plane(&mut self) -> Result<()> {
        let mut command = Command::new(&self.meltemi);
        command.arg("serve").arg("--config").arg(&self.live).arg("--derive-endpoints");
        command.arg(format!("--secureGRPCAddr={}", self.xds)).arg(format!("--monitoringAddr={}", self.monitoring));
        // Nobody gets configuration without saying who it is.
        command.args(["--grpcAddr=", "--httpsAddr=", "--stateDir"]).arg(self.state());
        let ready = port::reserve_usual(8080)?;
        command.arg(format!("--httpAddr={ready}"));
        self.processes.push(ChildProcess::start("meltemi", &self.logs(), &mut command)?);
        self.until("the control plane to be ready", || http::get(ready, "meltemi", "/ready"))?;
        Ok(())
    }

    fn start_proxies(&mut self) -> Result<()> {
        for pod in PODS {
            let mut command = self.agent(pod)?;
            // Without hot restart Envoy leaves nothing in shared memory, and several need no ids.
            command.args(["--", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]);
            self.processes.push(ChildProcess::start(&pod.proxy(), &self.logs(), &mut command)?);
        }
        Ok(())
    }

    fn agent(&self, pod: Pod) -> Result<Command> {
        // The pod that comes later is in the other folder; what its Envoy must know is there already.
        let folder = if pod.proxy() == CART_V2.proxy() { &self.later } else { &self.live };
        let mut command = Command::new(&self.meltemi);
        command.arg("agent").args(["--proxy", &pod.proxy(), "--service-account", pod.app, "--config"]).arg(folder);
        command.args(["--server", &self.xds.to_string(), "--server-name", SERVER_NAME, "--key", "P-256"]);
        command.args(["--admin", &pod.admin().to_string(), "--drain", "0s", "--envoy"]).arg(&self.envoy);
        command.arg("--root").arg(self.state().join("ca/ca-cert.pem")).arg("--token").arg(self.token(pod)?);
        command.arg("--workdir").arg(self.work.path().join(pod.proxy()));
        Ok(command)
    }

    /// The file with what the workload shows to get its first certificate.
    fn token(&self, pod: Pod) -> Result<PathBuf> {
        let mut command = Command::new(&self.meltemi);
        command.args(["token", "create", "--service-account", &format!("shop/{}", pod.app), "--stateDir"]);
        let file = self.work.path().join("tokens").join(pod.proxy());
        fs::write(&file, output(command.arg(self.state()))?)?;
        Ok(file)
    }

    /// Asks until there is an answer. Ends early when somebody pressed Ctrl-C or a process died.
    pub(crate) fn until<T>(&mut self, what: &str, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let answer = ask();
            if self.stopped.load(Ordering::Relaxed) {
                bail!("stopped while waiting for {what}");
            }
            self.processes.iter_mut().try_for_each(ChildProcess::check)?;
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if start.elapsed() > DEADLINE => {
                    let logs: String = self.processes.iter().map(ChildProcess::log_tail).collect();
                    return Err(error.context(format!("waited {} s for {what}\n{logs}", DEADLINE.as_secs())));
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    pub fn program(&self) -> &Path {
        &self.meltemi
    }

    /// With the folders `shop`, which is served, and `shop-later`.
    pub fn folder(&self) -> &Path {
        self.work.path()
    }

    pub fn monitoring(&self) -> SocketAddr {
        self.monitoring
    }

    /// Where the shop takes requests.
    pub fn front(&self) -> SocketAddr {
        FRONT.ingress()
    }

    /// Tries everything that it offers.
    pub fn check(&mut self) -> Result<()> {
        tries::run(self)
    }

    /// Says what there is to try, and waits.
    pub fn run_until_stopped(&mut self) -> Result<()> {
        tries::print(self);
        while !self.stopped.load(Ordering::Relaxed) {
            self.processes.iter_mut().try_for_each(ChildProcess::check)?;
            thread::sleep(Duration::from_millis(100));
        }
        eprintln!("\ndemo: stopping");
        Ok(())
    }

    /// Where the control plane keeps the key of its authority.
    fn state(&self) -> PathBuf {
        self.work.path().join("state")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.work.path().join("logs")
    }
}

impl Drop for OpenShop {
    fn drop(&mut self) {
        self.processes.iter().for_each(ChildProcess::ask_to_end);
    }
}

/// What a program printed; an error with its complaint when it failed.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let out = command.output().with_context(|| format!("run {program}"))?;
    if !out.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.display().to_string()).collect();
        bail!("{program} {}: {}\n{}", arguments.join(" "), out.status, String::from_utf8_lossy(&out.stderr));
    }
    String::from_utf8(out.stdout).with_context(|| format!("read what {program} printed"))
}

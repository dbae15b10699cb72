//! The cluster of all tests with Meltemi in it, installed by its chart, and the programs that people use with it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::environment::{self, RealCluster};
use testkit::wait::eventually_blocking;

/// Where images come from: what `cargo xtask test --cluster` gave to the node.
pub(crate) const IMAGES: &str = "global.hub=docker.io/library,global.tag=local";

/// The Envoy that `meltemi agent` runs.
const AGENT_IMAGE: &str = "sidecarInjectorWebhook.agent.envoyImage=docker.io/library/meltemi-proxy:local";

pub(crate) struct Mesh {
    cluster: RealCluster,
    helm: PathBuf,
    turn: Mutex<()>,
}

/// One test with the cluster, in which the chart is installed with its default values.
pub(crate) fn in_turn(scenario: impl FnOnce(&Mesh) -> Result<()>) {
    static MESH: OnceLock<Mesh> = OnceLock::new();
    let mesh = MESH.get_or_init(|| Mesh::install().unwrap_or_else(|e| panic!("no mesh: {e:#}")));
    let _turn: MutexGuard<'_, ()> = mesh.turn.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = scenario(mesh) {
        let pods = mesh.kubectl(&["get", "pods", "-A", "-o", "wide"]).unwrap_or_default();
        let events = mesh.kubectl(&["get", "events", "-A", "--field-selector=type=Warning"]).unwrap_or_default();
        let events: Vec<&str> = events.lines().rev().take(15).collect();
        panic!("{error:#}\n{pods}\n{}", events.join("\n"));
    }
}

impl Mesh {
    fn install() -> Result<Mesh> {
        let cluster = environment::real_cluster().context("run these tests with cargo xtask test --cluster")?;
        let helm = environment::helm().context("cargo xtask setup fetches helm")?;
        let mesh = Mesh { cluster, helm, turn: Mutex::default() };
        mesh.helm_install("istiod", "istio-system", &["--set", IMAGES, "--set", AGENT_IMAGE])?;
        Ok(mesh)
    }

    /// Installs or upgrades a release of the chart, and waits until it is ready.
    pub(crate) fn helm_install(&self, release: &str, namespace: &str, words: &[&str]) -> Result<String> {
        let chart = environment::repository().join("deploy/helm/meltemi").display().to_string();
        let fixed =
            ["upgrade", "--install", release, &chart, "-n", namespace, "--create-namespace", "--wait", "--timeout=3m"];
        self.helm(&[&fixed, words].concat())
    }

    pub(crate) fn helm(&self, words: &[&str]) -> Result<String> {
        output(Command::new(&self.helm).env("KUBECONFIG", &self.cluster.kubeconfig).args(words))
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> Result<String> {
        output(Command::new(&self.cluster.kubectl).env("KUBECONFIG", &self.cluster.kubeconfig).args(words))
    }

    pub(crate) fn get(&self, words: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get"], words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("read what kubectl get {} printed", words.join(" ")))
    }

    /// What the API server says to objects in YAML.
    pub(crate) fn apply(&self, objects: &str) -> Result<String> {
        self.kubectl_with(&["apply", "-f", "-"], objects)
    }

    /// kubectl with this on stdin.
    pub(crate) fn kubectl_with(&self, words: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(&self.cluster.kubectl);
        command.env("KUBECONFIG", &self.cluster.kubeconfig).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("piped above")?.write_all(input.as_bytes())?;
        let out = child.wait_with_output()?;
        ensure!(out.status.success(), "kubectl {}: {}", words.join(" "), String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8(out.stdout)?)
    }

    /// `cargo xtask cluster` for the node itself. `None`: the cluster is none of ours.
    pub(crate) fn on_node(&self, words: &[&str]) -> Option<Result<String>> {
        let (xtask, number) = self.cluster.node.as_ref()?;
        Some(output(Command::new(xtask).args(["cluster", "--number", number]).args(words)))
    }

    pub(crate) fn rolled_out(&self, namespace: &str, deployment: &str) -> Result<()> {
        self.kubectl(&["-n", namespace, "rollout", "status", &format!("deployment/{deployment}"), "--timeout=3m"])?;
        Ok(())
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Mesh) -> Result<bool>) -> Result<()> {
        eventually_blocking(what, || holds(self))
    }

    /// The pods with these labels.
    pub(crate) fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Value>> {
        let list = self.get(&["pods", "-n", namespace, "-l", labels])?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

/// A namespace that goes with its guard.
pub(crate) struct Namespace<'a> {
    mesh: &'a Mesh,
    pub(crate) name: &'static str,
}

impl<'a> Namespace<'a> {
    pub(crate) fn new(mesh: &'a Mesh, name: &'static str, labels: &str) -> Result<Namespace<'a>> {
        mesh.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{labels}}}}}}}"))?;
        Ok(Namespace { mesh, name })
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let _ = self.mesh.kubectl(&["delete", "namespace", self.name, "--wait=false"]);
    }
}

fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("run {}", command.get_program().display()))?;
    let words: Vec<_> = command.get_args().map(|word| word.display().to_string()).collect();
    let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "{} {}: {complaint}", command.get_program().display(), words.join(" "));
    Ok(String::from_utf8(out.stdout)?)
}

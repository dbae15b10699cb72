//! `cargo xtask test --cluster`: the tests that need real pods, on a node that is started for them and goes with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cluster::{self, Node, RunningNode};
use crate::image::Which;
use crate::reference::Reference;
use crate::{helm, progress, project, setup};

/// Not the one that a developer uses by default.
const NUMBER: &str = "9";
/// All of them; on another cluster if one is given, which must have the images.
pub(crate) fn run(kubeconfig: Option<&Path>) -> Result<()> {
    match kubeconfig {
        Some(file) => on_cluster(file, None),
        None => {
            cluster::setup()?;
            on_own_node()
        }
    }
}

fn on_own_node() -> Result<()> {
    // Ctrl-C ends cargo, which has it from the terminal, too; then the node is removed.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).context("listen for Ctrl-C")?;
    }
    // With the features of the other tests, so that nothing is compiled twice.
    progress::step("build meltemi", &mut project::cargo(["build", "--workspace", "--bin", "meltemi"]))?;
    let program = project::tested_meltemi();
    let node: Node = NUMBER.parse()?;
    let running = RunningNode::start(node)?;
    let other = Which::Meltemi.image("meltemi:other", &program)?;
    let images = [Which::Meltemi.image("meltemi:local", &program)?, other, Which::Proxy.image("", &program)?];
    cluster::give(node, &images)?;
    cluster::give(node, &[Which::App.image("", &program)?, Which::AgentProxy.image("", &program)?])?;
    let outcome = on_cluster(&node.kubeconfig()?, Some(node));
    drop(running);
    let traces = cluster::traces(node)?;
    ensure!(traces.is_empty(), "the node left behind: {}", traces.join(", "));
    outcome
}

fn on_cluster(kubeconfig: &Path, node: Option<Node>) -> Result<()> {
    let tools = setup::tools()?;
    helm::setup(&tools.python)?;
    let kinds = Reference::kinds_file()?;
    progress::step(
        "Istio's kinds",
        cluster::kubectl_command(kubeconfig)?.args(["apply", "--server-side", "-f"]).arg(kinds),
    )?;
    let mut tests = project::cargo(["test", "--workspace", "--test", "node", "--", "--ignored", "--test-threads=1"]);
    tests.env("MELTEMI_CLUSTER", kubeconfig).env("MELTEMI_KUBECTL", kubectl(kubeconfig)?);
    if let Some(node) = node {
        tests.env("MELTEMI_XTASK", std::env::current_exe()?).env("MELTEMI_CLUSTER_NUMBER", node.to_string());
    }
    ensure!(tests.status()?.success(), "tests on a real cluster failed");
    Ok(())
}

fn kubectl(kubeconfig: &Path) -> Result<PathBuf> {
    Ok(PathBuf::from(cluster::kubectl_command(kubeconfig)?.get_program()))
}

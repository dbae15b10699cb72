//! Helm, for the tests of the chart: built from its Go module into the cache folder. Installs nothing on the system and needs no root.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{progress, project};

const VERSION: &str = "v4.1.3";

/// Builds it if it is missing; says nothing and takes no time when it is there. MELTEMI_HELM names another, as for the tests.
pub(crate) fn setup() -> Result<()> {
    if std::env::var_os("MELTEMI_HELM").is_some() {
        return Ok(());
    }
    let cache = project::cache()?;
    let (link, dir) = (cache.join("bin/helm"), cache.join("helm").join(VERSION));
    let program = dir.join("helm");
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
    eprintln!("setup: helm {VERSION}, built with Go (about three minutes)");
    let mut go = Command::new("go");
    go.args(["install", "-trimpath", &format!("helm.sh/helm/v4/cmd/helm@{VERSION}")]);
    go.envs([("GONOSUMDB", "*"), ("GOFLAGS", "-buildvcs=false"), ("CGO_ENABLED", "0")]).env("GOBIN", &dir);
    progress::step("go install helm", &mut go).context("is Go installed, and is a network there?")?;
    relink(&program, &link)
}

/// The path does not carry the version, for the tests.
fn relink(program: &Path, link: &Path) -> Result<()> {
    fs::remove_file(link).ok();
    std::os::unix::fs::symlink(program, link).with_context(|| format!("make the link {}", link.display()))
}

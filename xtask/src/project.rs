//! Where things are: the clone, its files, the cache folder. Knows nothing of what the files hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the project")
}

/// The XDG cache folder of the project: what is downloaded stays outside the clone and survives it.
pub(crate) fn cache() -> Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    Ok(given.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set; set one")?.join("meltemi"))
}

/// A cargo command in the project's root, by the cargo that runs us.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The program as it is shipped: a plain release build, as in the README and the Dockerfile.
pub(crate) fn shipped() -> Command {
    cargo(["build", "--release", "--package", "meltemi"])
}

/// Where cargo puts its output, also when CARGO_TARGET_DIR moves it.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The program, built if it is not given: MELTEMI_BIN, as for the tests. The profile is that of the tests.
pub(crate) fn meltemi() -> Result<PathBuf> {
    if let Some(given) = given() {
        return Ok(given);
    }
    progress::step("build meltemi", &mut cargo(["build", "--package", "meltemi"]))?;
    Ok(target().join("debug/meltemi"))
}

/// The same where `cargo test --workspace` runs: it builds the program for the tests of its package. To build it apart takes minutes,
/// since fewer features of its dependencies are asked for then.
pub(crate) fn tested_meltemi() -> PathBuf {
    given().unwrap_or_else(|| target().join("debug/meltemi"))
}

fn given() -> Option<PathBuf> {
    std::env::var_os("MELTEMI_BIN").map(PathBuf::from)
}

pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|v| v == "true")
}

/// Every file of the project below `dir`, sorted, relative to it; build output, git's own folder and links are left out.
pub(crate) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read folder {}", folder.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            if kind.is_dir() {
                if !matches!(entry.file_name().to_str(), Some("target" | ".git" | "node_modules")) {
                    folders.push(path);
                }
            } else if kind.is_file() {
                found.push(path.strip_prefix(dir).expect("found below dir").to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

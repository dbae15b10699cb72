//! The packages that are linked into the program, as `cargo metadata` and Cargo.lock say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::project;

const PROGRAM: &str = "meltemi";

pub(super) struct Packages {
    /// By reference; the program itself is one of them.
    pub(super) all: BTreeMap<String, Package>,
    pub(super) program: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: String,
    pub(super) folder: PathBuf,
    /// Not one of this project.
    pub(super) is_foreign: bool,
    /// The SHA-256 of what the registry serves.
    pub(super) checksum: Option<String>,
    /// References of the packages that it uses.
    pub(super) uses: BTreeSet<String>,
}

impl Packages {
    pub(super) fn of_meltemi() -> Result<Packages> {
        let metadata = metadata()?;
        let lock = std::fs::read_to_string(project::root().join("Cargo.lock")).context("read Cargo.lock")?;
        Packages::linked(&metadata, &lock)
    }

    /// Without what only tests and build scripts use, and what only the compiler runs.
    fn linked(metadata: &Value, lock: &str) -> Result<Packages> {
        let sums = checksums(lock)?;
        let listed: BTreeMap<&str, &Value> = entries(&metadata["packages"]).map(|it| (text(&it["id"]), it)).collect();
        let nodes: BTreeMap<&str, &Value> =
            entries(&metadata["resolve"]["nodes"]).map(|it| (text(&it["id"]), it)).collect();
        let is_program = |it: &&&Value| it["name"] == PROGRAM && it["source"].is_null();
        let program = text(&listed.values().find(is_program).context("cargo metadata names no program")?["id"]);
        let mut out = Packages { all: BTreeMap::new(), program: reference(listed[program]) };
        let mut waiting = vec![program];
        while let Some(id) = waiting.pop() {
            let package = listed.get(id).with_context(|| format!("cargo metadata lacks {id}"))?;
            let key = reference(package);
            if out.all.contains_key(&key) {
                continue;
            }
            let used: Vec<&str> = entries(&nodes.get(id).with_context(|| format!("{id} is not resolved"))?["deps"])
                .filter(|it| entries(&it["dep_kinds"]).any(|kind| kind["kind"].is_null()))
                .map(|it| text(&it["pkg"]))
                .filter(|used| listed.get(used).is_some_and(|it| !is_macro(it)))
                .collect();
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let found = Package {
                name: name.to_owned(),
                version: version.to_owned(),
                licence: text(&package["license"]).replace('/', " OR "),
                folder: PathBuf::from(text(&package["manifest_path"])).parent().map(PathBuf::from).unwrap_or_default(),
                is_foreign: !package["source"].is_null(),
                checksum: sums.get(&(name.to_owned(), version.to_owned())).cloned(),
                uses: used.iter().map(|used| reference(listed[used])).collect(),
            };
            out.all.insert(key, found);
            waiting.extend(used);
        }
        Ok(out)
    }

    pub(super) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.all.values().filter(|package| package.is_foreign)
    }
}

/// A package URL.
fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn is_macro(package: &Value) -> bool {
    entries(&package["targets"]).any(|target| entries(&target["kind"]).any(|kind| kind == "proc-macro"))
}

fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = toml::from_str(lock).context("read Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let field = |it: &toml::Value, name: &str| it.get(name).and_then(toml::Value::as_str).map(str::to_owned);
    Ok(packages.filter_map(|it| Some(((field(it, "name")?, field(it, "version")?), field(it, "checksum")?))).collect())
}

fn metadata() -> Result<Value> {
    let ask = |offline: &[&str]| -> Result<Value> {
        let mut command = project::cargo(["metadata", "--format-version=1", "--locked"]);
        command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).args(offline);
        let out = command.output().context("run cargo metadata")?;
        if !out.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        serde_json::from_slice(&out.stdout).context("read cargo metadata")
    };
    ask(&["--offline"]).or_else(|_| ask(&[]))
}

fn entries(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_linked_counts() {
        let package = |name: &str, kind: &str, source: Value| {
            json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
                    "manifest_path": format!("/p/{name}/Cargo.toml"), "targets": [{ "kind": [kind] }] })
        };
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("meltemi", "bin", Value::Null), package("used", "lib", json!("registry")), package("tested", "lib", json!("registry")),
                package("built", "lib", json!("registry")), package("derive", "proc-macro", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "meltemi", "deps": [
                    dependency("used", Value::Null), dependency("tested", json!("dev")),
                    dependency("built", json!("build")), dependency("derive", Value::Null),
                ] },
                { "id": "used", "deps": [] },
            ] },
        });
        let lock = "[[package]]\nname = 'used'\nversion = '1.0.0'\nchecksum = 'abc'\n";
        let found = Packages::linked(&metadata, lock).unwrap();
        assert_eq!(found.all.keys().collect::<Vec<_>>(), ["pkg:cargo/meltemi@1.0.0", "pkg:cargo/used@1.0.0"]);
        let used = found.foreign().next().unwrap();
        assert_eq!((used.licence.as_str(), used.checksum.as_deref()), ("MIT OR Apache-2.0", Some("abc")));
        assert_eq!(used.folder, PathBuf::from("/p/used"));
    }
}

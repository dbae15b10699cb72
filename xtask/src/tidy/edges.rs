//! The walls between crates: which crate of ours uses which, and who may use a fenced dependency. Reads manifests only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::rules::{FILE, Rules};
use super::{Finding, line_of};

#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) table: Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Product,
    Dev,
}

impl Manifest {
    pub(super) fn new(path: impl Into<PathBuf>, text: String) -> Result<Manifest> {
        let path = path.into();
        let table = text.parse().with_context(|| path.display().to_string())?;
        Ok(Manifest { path, text, table })
    }

    /// `None`: the workspace's own manifest.
    pub(super) fn name(&self) -> Option<&str> {
        self.table.get("package")?.get("name")?.as_str()
    }

    pub(super) fn folder(&self) -> &Path {
        self.path.parent().expect("a manifest is in a folder")
    }

    /// Name and declaration of each dependency. Build dependencies count as those of the product.
    pub(super) fn dependencies(&self) -> Vec<(Section, &str, &Value)> {
        let targets = self.table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
        let tables = std::iter::once(&self.table).chain(targets.filter_map(Value::as_table));
        let keys = [
            ("dependencies", Section::Product),
            ("build-dependencies", Section::Product),
            ("dev-dependencies", Section::Dev),
        ];
        let mut found = Vec::new();
        for table in tables {
            for (key, section) in keys {
                let listed = table.get(key).and_then(Value::as_table).into_iter().flatten();
                found.extend(listed.map(|(name, value)| (section, name.as_str(), value)));
            }
        }
        found
    }

    fn finding(&self, dependency: &str, what: String, why: &str, fix: String) -> Finding {
        let line = line_of(&self.text, dependency);
        Finding { file: self.path.clone(), line, what, why: why.to_owned(), fix }
    }
}

pub(super) fn read_all(root: &Path, files: &[PathBuf]) -> Result<Vec<Manifest>> {
    let manifests = files.iter().filter(|f| f.file_name().is_some_and(|n| n == "Cargo.toml"));
    manifests.map(|path| Manifest::new(path, std::fs::read_to_string(root.join(path))?)).collect()
}

pub(super) fn check(rules: &Rules, manifests: &[Manifest]) -> Vec<Finding> {
    let crates: BTreeMap<&str, &Manifest> = manifests.iter().filter_map(|m| Some((m.name()?, m))).collect();
    let mut found = Vec::new();
    for (name, manifest) in &crates {
        found.extend(walls(rules, &crates, name, manifest));
        found.extend(fences(rules, name, manifest));
    }
    let gone = rules.edges.keys().filter(|name| !crates.contains_key(name.as_str()));
    found.extend(gone.map(|name| Finding {
        file: FILE.into(),
        line: 1,
        what: format!("[edges] names crate {name}, which does not exist"),
        why: "the table is the map of the project".into(),
        fix: "remove the line".into(),
    }));
    found
}

fn walls(rules: &Rules, crates: &BTreeMap<&str, &Manifest>, name: &str, manifest: &Manifest) -> Vec<Finding> {
    let why = "the crates are layers, and nothing flows upward; ARCHITECTURE.md has the picture";
    let Some(allowed) = rules.edges.get(name) else {
        let what = format!("crate {name} is not in the table of allowed edges");
        return vec![manifest.finding("name", what, why, format!("add it to [edges] in {FILE}"))];
    };
    let ours = manifest.dependencies().into_iter().filter(|(_, to, _)| crates.contains_key(to) && *to != name);
    let bad = ours.filter(|(section, to, _)| {
        let in_test = *section == Section::Dev && *to == "testkit";
        !in_test && !allowed.iter().any(|a| a == to)
    });
    bad.map(|(_, to, _)| {
        let fix = format!("move the code to where the fact is known; the allowed edges are in {FILE}");
        manifest.finding(to, format!("{name} must not use {to}"), why, fix)
    })
    .collect()
}

fn fences(rules: &Rules, name: &str, manifest: &Manifest) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, to, _) in manifest.dependencies().into_iter().filter(|(section, ..)| *section == Section::Product) {
        for fence in rules.fence.iter().filter(|f| f.dependencies.iter().any(|d| d == to)) {
            if !fence.only_in.iter().any(|c| c == name) {
                let what = format!("{name} must not use {to}");
                let fix = format!("only {} may; the fences are in {FILE}", fence.only_in.join(", "));
                found.push(manifest.finding(to, what, &fence.why, fix));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifests: &[(&str, &str)]) -> Vec<String> {
        let mut rules = Rules::read(crate::project::root()).unwrap();
        let manifests: Vec<Manifest> = manifests
            .iter()
            .map(|(name, rest)| {
                let text = format!("[package]\nname = \"{name}\"\n{rest}");
                Manifest::new(format!("crates/{name}/Cargo.toml"), text).unwrap()
            })
            .collect();
        rules.edges.retain(|name, _| manifests.iter().any(|m| m.name() == Some(name)));
        check(&rules, &manifests).into_iter().map(|f| format!("{}: {}", f.line, f.what)).collect()
    }

    #[test]
    fn rejects_an_edge_upward() {
        let pair = |from: &str| found(&[("model", from), ("translate", "")]);
        assert_eq!(pair("[dependencies]\ntranslate.workspace = true\n"), ["4: model must not use translate"]);
        assert_eq!(pair("[build-dependencies]\ntranslate.workspace = true\n").len(), 1);
        assert_eq!(pair("[target.'cfg(unix)'.dependencies]\ntranslate.workspace = true\n").len(), 1);
        assert_eq!(pair("[dev-dependencies]\ntranslate.workspace = true\n").len(), 1);
        assert!(found(&[("translate", "[dependencies]\nmodel.workspace = true\n"), ("model", "")]).is_empty());
    }

    #[test]
    fn testkit_is_for_tests() {
        assert!(found(&[("xds", "[dev-dependencies]\ntestkit.workspace = true\n"), ("testkit", "")]).is_empty());
        assert_eq!(found(&[("xds", "[dependencies]\ntestkit.workspace = true\n"), ("testkit", "")]).len(), 1);
    }

    #[test]
    fn a_fenced_dependency_stays_behind_its_fence() {
        assert_eq!(found(&[("config", "[dependencies]\ntokio.workspace = true\n")]), ["4: config must not use tokio"]);
        assert!(found(&[("config", "[dev-dependencies]\ntokio.workspace = true\n")]).is_empty());
        assert!(found(&[("xds", "[dependencies]\nhyper = \"1\"\n")]).is_empty());
        assert_eq!(found(&[("views", "[dependencies]\nkube = \"1\"\n")]).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_its_line() {
        assert_eq!(found(&[("novel", "")]), ["2: crate novel is not in the table of allowed edges"]);
    }

    #[test]
    fn a_line_needs_its_crate() {
        let mut rules = Rules::default();
        rules.edges.insert("gone".into(), vec![]);
        assert_eq!(check(&rules, &[]).len(), 1);
    }
}

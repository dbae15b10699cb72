//! docs/dependencies.md names every dependency and no other, and every dependency of the workspace is used.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Value;

use super::edges::Manifest;
use super::{Finding, line_of};

const FILE: &str = "docs/dependencies.md";

pub(super) fn check(root: &Path, manifests: &[Manifest]) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    Ok(findings(&text, manifests))
}

fn findings(text: &str, manifests: &[Manifest]) -> Vec<Finding> {
    let documented = documented(text);
    let used: BTreeSet<&str> = manifests.iter().flat_map(Manifest::dependencies).map(|(_, name, _)| name).collect();
    let mut found = Vec::new();
    let mut declared = BTreeSet::new();
    for manifest in manifests {
        for name in versions(manifest) {
            declared.insert(name);
            let mut report = |what: String, why: &str, fix: String| {
                let (file, line) = (manifest.path.clone(), line_of(&manifest.text, &format!("{name} =")));
                found.push(Finding { file, line, what, why: why.into(), fix });
            };
            if !documented.contains(name) {
                let why = "a dependency is other people's code in our program";
                report(format!("{name} is not in {FILE}"), why, "add a row: what for, why this one".into());
            }
            if !used.contains(name) {
                report(
                    format!("no crate uses {name}"),
                    "nothing dead is kept",
                    format!("remove it here and in {FILE}"),
                );
            }
        }
    }
    found.extend(documented.difference(&declared).map(|name| Finding {
        file: FILE.into(),
        line: line_of(text, &format!("| `{name}`")),
        what: format!("{name} is not a dependency"),
        why: "the list must stay true".into(),
        fix: "remove the row".into(),
    }));
    found
}

/// First cells in backticks of the rows of all tables.
fn documented(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// Dependencies that this manifest gives a version, in contrast to our own crates and to those taken from the workspace.
fn versions(manifest: &Manifest) -> Vec<&str> {
    let workspace = manifest.table.get("workspace").and_then(|w| w.get("dependencies")).and_then(Value::as_table);
    let shared = workspace.into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    let own = manifest.dependencies().into_iter().map(|(_, name, value)| (name, value));
    let is_versioned = |value: &Value| value.is_str() || value.get("version").is_some();
    shared.chain(own).filter(|(_, value)| is_versioned(value)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let root = "[workspace.dependencies]\nanyhow = \"1\"\nours = { path = \"crates/ours\" }\n";
        let member = "[package]\nname = \"ours\"\n[dependencies]\nanyhow.workspace = true\n[target.x.dependencies]\nodd = \"1\"\n";
        let manifests = [
            Manifest::new("Cargo.toml", root.to_owned()).unwrap(),
            Manifest::new("crates/ours/Cargo.toml", member.to_owned()).unwrap(),
        ];
        findings(text, &manifests).into_iter().map(|f| format!("{}:{} {}", f.file.display(), f.line, f.what)).collect()
    }

    #[test]
    fn every_dependency_has_a_row() {
        assert!(found("| `anyhow` | errors |\n| `odd` | x |\n").is_empty());
        assert_eq!(found("| `odd` | x |\n"), ["Cargo.toml:2 anyhow is not in docs/dependencies.md"]);
        assert_eq!(found("| `anyhow` | x |\n"), ["crates/ours/Cargo.toml:6 odd is not in docs/dependencies.md"]);
    }

    #[test]
    fn a_row_without_a_dependency_is_found() {
        let text = "| `anyhow` | errors |\n| `odd` | x |\n| `gone` | x |\n";
        assert_eq!(found(text), ["docs/dependencies.md:3 gone is not a dependency"]);
    }

    #[test]
    fn what_nobody_uses_is_found() {
        let root = Manifest::new("Cargo.toml", "[workspace.dependencies]\nanyhow = \"1\"\n".to_owned()).unwrap();
        assert_eq!(findings("| `anyhow` | x |\n", &[root])[0].what, "no crate uses anyhow");
    }
}

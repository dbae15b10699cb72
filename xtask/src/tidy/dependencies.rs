//! docs/internals/dependencies.md names every dependency and no other, every dependency of the workspace is declared by a crate, and every
//! crate uses what it declares.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Value;

use super::edges::{Manifest, Section};
use super::rules::{FILE as RULES, Rules};
use super::source::Source;
use super::{Finding, contains_word, line_of};

const FILE: &str = "docs/internals/dependencies.md";

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

/// Dependencies that a crate declares and whose name its code does not hold. Code under `tests`, `benches` and `examples` may use what
/// is for tests; what only they use is not a dependency of the product.
pub(super) fn unused(rules: &Rules, manifests: &[Manifest], sources: &[Source]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for manifest in manifests {
        let Some(package) = manifest.name() else { continue };
        for (section, name) in unnamed(manifest, sources) {
            let exception = rules.silent_dependency.iter().position(|it| it.name == name && it.package == package);
            match exception {
                Some(at) => drop(needed.insert(at)),
                None => found.push(unused_finding(manifest, section, name)),
            }
        }
    }
    let unneeded = rules.silent_dependency.iter().enumerate().filter(|(at, _)| !needed.contains(at));
    found.extend(unneeded.map(|(_, it)| Finding {
        file: RULES.into(),
        line: 1,
        what: format!("the exception for {} of crate {} is not needed", it.name, it.package),
        why: "it would hide that the dependency is not used any more".into(),
        fix: "remove it".into(),
    }));
    found
}

/// Dependencies of this crate whose name does not occur in its code.
fn unnamed<'a>(manifest: &'a Manifest, sources: &[Source]) -> Vec<(Section, &'a str)> {
    let own: Vec<&Source> = sources.iter().filter(|it| it.path.starts_with(manifest.folder())).collect();
    let mut found = Vec::new();
    for (section, name, _) in manifest.dependencies() {
        let word = name.replace('-', "_");
        let is_searched = |source: &&&Source| section == Section::Dev || is_product(manifest.folder(), &source.path);
        if !own.iter().filter(is_searched).any(|source| contains_word(&source.code, &word)) {
            found.push((section, name));
        }
    }
    found
}

fn unused_finding(manifest: &Manifest, section: Section, name: &str) -> Finding {
    let (place, fix) = match section {
        Section::Product => ("src or build.rs", "remove it, or move it to [dev-dependencies] if only tests use it"),
        Section::Dev => ("src, tests or benches", "remove it"),
    };
    Finding {
        file: manifest.path.clone(),
        line: line_of(&manifest.text, name),
        what: format!("{name} is a dependency, but `{}` does not occur in {place}", name.replace('-', "_")),
        why: "what is not used is compiled and audited for nothing".into(),
        fix: format!("{fix}; if it is needed without being named, list it in {RULES}"),
    }
}

fn is_product(folder: &Path, source: &Path) -> bool {
    let first = source.strip_prefix(folder).ok().and_then(|path| path.iter().next()?.to_str());
    matches!(first, Some("src" | "build.rs"))
}

#[cfg(test)]
mod tests {
    use super::super::rules::SilentDependency;
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
        assert_eq!(found("| `odd` | x |\n"), ["Cargo.toml:2 anyhow is not in docs/internals/dependencies.md"]);
        assert_eq!(
            found("| `anyhow` | x |\n"),
            ["crates/ours/Cargo.toml:6 odd is not in docs/internals/dependencies.md"]
        );
    }

    #[test]
    fn a_row_without_a_dependency_is_found() {
        let text = "| `anyhow` | errors |\n| `odd` | x |\n| `gone` | x |\n";
        assert_eq!(found(text), ["docs/internals/dependencies.md:3 gone is not a dependency"]);
    }

    #[test]
    fn what_nobody_uses_is_found() {
        let root = Manifest::new("Cargo.toml", "[workspace.dependencies]\nanyhow = \"1\"\n".to_owned()).unwrap();
        assert_eq!(findings("| `anyhow` | x |\n", &[root])[0].what, "no crate uses anyhow");
    }
    fn not_used(dependencies: &str, files: &[(&str, &str)]) -> Vec<String> {
        not_used_but(None, dependencies, files)
    }

    fn not_used_but(silent: Option<SilentDependency>, dependencies: &str, files: &[(&str, &str)]) -> Vec<String> {
        let text = format!("[package]\nname = \"ours\"\n{dependencies}");
        let manifest = Manifest::new("crates/ours/Cargo.toml", text).unwrap();
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/{path}"), (*text).to_owned())).collect();
        let rules = Rules { silent_dependency: silent.into_iter().collect(), ..Rules::default() };
        unused(&rules, &[manifest], &sources).into_iter().map(|f| format!("{}: {}", f.line, f.what)).collect()
    }

    #[test]
    fn a_dependency_that_its_crate_does_not_use_is_found() {
        let odd = "[dependencies]\nodd-one.workspace = true\n";
        let what = ["4: odd-one is a dependency, but `odd_one` does not occur in src or build.rs"];
        assert_eq!(not_used(odd, &[("ours/src/lib.rs", "// odd_one\nfn f() { my_odd_one(\"odd_one\") }\n")]), what);
        assert_eq!(not_used(odd, &[("other/src/lib.rs", "use odd_one::x;\n")]), what);
        assert_eq!(not_used(odd, &[("ours/tests/a.rs", "use odd_one::x;\n")]), what);
        for file in ["ours/src/lib.rs", "ours/build.rs"] {
            assert!(not_used(odd, &[(file, "use odd_one::x;\n")]).is_empty(), "{file}");
        }
    }

    #[test]
    fn a_dependency_of_tests_may_be_used_anywhere_in_the_crate() {
        let odd = "[dev-dependencies]\nodd = \"1\"\n";
        assert!(not_used(odd, &[("ours/tests/a.rs", "use odd::x;\n")]).is_empty());
        assert!(not_used(odd, &[("ours/src/a.rs", "#[cfg(test)]\nmod tests {\n    use odd::x;\n}\n")]).is_empty());
        assert_eq!(not_used(odd, &[]), ["4: odd is a dependency, but `odd` does not occur in src, tests or benches"]);
    }

    #[test]
    fn an_exception_for_a_silent_dependency_must_be_needed() {
        let odd = "[dependencies]\nodd = \"1\"\n";
        let silent = || SilentDependency { name: "odd".into(), package: "ours".into(), _why: "features".into() };
        assert!(not_used_but(Some(silent()), odd, &[]).is_empty());
        assert_eq!(
            not_used_but(Some(silent()), odd, &[("ours/src/lib.rs", "use odd::x;\n")]),
            ["1: the exception for odd of crate ours is not needed"]
        );
    }
}

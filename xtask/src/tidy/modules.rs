//! Which files a `mod` line reaches, and whether they are part of the product or of its tests. A file that none reaches
//! is not compiled, so its tests do not run.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use toml::Value;

use super::Finding;
use super::edges::Manifest;
use super::source::Source;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reach {
    #[default]
    Product,
    Test,
}

pub(super) fn reached(manifests: &[Manifest], sources: &[Source]) -> BTreeMap<PathBuf, Reach> {
    let by_path: BTreeMap<&Path, &Source> = sources.iter().map(|s| (s.path.as_path(), s)).collect();
    let mut open = roots(manifests, sources);
    let mut reached = BTreeMap::new();
    while let Some((path, reach, is_root)) = open.pop() {
        let Some(source) = by_path.get(path.as_path()) else { continue };
        if reached.get(&path) == Some(&Reach::Product) || reached.get(&path) == Some(&reach) {
            continue;
        }
        for declared in declarations(source) {
            let reach = if declared.in_tests { Reach::Test } else { reach };
            open.extend(declared.candidates(&path, is_root).into_iter().map(|file| (file, reach, false)));
        }
        reached.insert(path, reach);
    }
    reached
}

pub(super) fn check(sources: &[Source], reached: &BTreeMap<PathBuf, Reach>) -> Vec<Finding> {
    let lost = sources.iter().filter(|s| !reached.contains_key(&s.path));
    lost.map(|s| Finding {
        file: s.path.clone(),
        line: 1,
        what: "no `mod` line reaches this file".into(),
        why: "it is not compiled, and its tests do not run".into(),
        fix: "declare it in its parent, or delete it".into(),
    })
    .collect()
}

/// The files that cargo compiles by itself.
fn roots(manifests: &[Manifest], sources: &[Source]) -> Vec<(PathBuf, Reach, bool)> {
    let mut found = Vec::new();
    for manifest in manifests.iter().filter(|m| m.name().is_some()) {
        let folder = manifest.folder();
        for (file, reach) in named_targets(manifest) {
            found.push((plain(&folder.join(file)), reach, true));
        }
        for source in sources {
            if let Some(reach) = source.path.strip_prefix(folder).ok().and_then(found_by_cargo) {
                found.push((source.path.clone(), reach, true));
            }
        }
    }
    found
}

fn named_targets(manifest: &Manifest) -> Vec<(&str, Reach)> {
    let keys = [("bin", Reach::Product), ("lib", Reach::Product), ("test", Reach::Test), ("bench", Reach::Test)];
    let mut found = Vec::new();
    for (key, reach) in keys {
        let listed = match manifest.table.get(key) {
            Some(Value::Array(list)) => list.iter().collect(),
            Some(one) => vec![one],
            None => vec![],
        };
        found.extend(listed.into_iter().filter_map(|t| Some((t.get("path")?.as_str()?, reach))));
    }
    found
}

fn found_by_cargo(path: &Path) -> Option<Reach> {
    let parts: Vec<&str> = path.iter().filter_map(|p| p.to_str()).collect();
    match parts[..] {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] => {
            Some(Reach::Product)
        }
        ["tests" | "benches" | "examples", _] | ["tests" | "benches" | "examples", _, "main.rs"] => Some(Reach::Test),
        _ => None,
    }
}

struct Declaration<'a> {
    name: &'a str,
    /// `None`: the name says where the file is.
    path: Option<&'a str>,
    in_tests: bool,
}

impl Declaration<'_> {
    fn candidates(&self, parent: &Path, is_root: bool) -> Vec<PathBuf> {
        let folder = parent.parent().unwrap_or(Path::new(""));
        if let Some(path) = self.path {
            return vec![plain(&folder.join(path))];
        }
        let stem = parent.file_stem().unwrap_or_default();
        let base = if is_root || stem == "mod" { folder.to_owned() } else { folder.join(stem) };
        vec![base.join(format!("{}.rs", self.name)), base.join(self.name).join("mod.rs")]
    }
}

/// `mod name;` lines with the attributes above them. Modules inside an inline module are not looked for: we write none.
fn declarations(source: &Source) -> Vec<Declaration<'_>> {
    let mut found = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for (number, (code, text)) in source.code.lines().zip(source.text.lines()).enumerate() {
        let mut code = code.trim();
        if code.is_empty() {
            continue;
        }
        let mut is_attribute = false;
        while code.starts_with("#[")
            && let Some(end) = code.find(']')
        {
            attributes.push(text);
            code = code[end + 1..].trim_start();
            is_attribute = code.is_empty();
        }
        if is_attribute {
            continue;
        }
        if let Some(name) = declared_name(code) {
            let path = attributes.iter().find_map(|a| a.split_once("path = \"")?.1.split('"').next());
            let in_tests = number >= source.body || attributes.iter().any(|a| a.contains("cfg(test)"));
            found.push(Declaration { name, path, in_tests });
        }
        attributes.clear();
    }
    found
}

fn declared_name(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub").map_or(code, |rest| {
        let rest = rest.trim_start();
        if rest.starts_with('(') { rest.split_once(')').map_or(rest, |(_, after)| after.trim_start()) } else { rest }
    });
    let name = code.strip_prefix("mod ")?.strip_suffix(';')?.trim();
    Some(name.strip_prefix("r#").unwrap_or(name))
}

/// The path without `..`, so that two spellings of one file are equal.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach_of(files: &[(&str, &str)], manifest: &str) -> BTreeMap<String, Reach> {
        let text = format!("[package]\nname = \"x\"\n{manifest}");
        let manifest = Manifest::new("crates/x/Cargo.toml", text).unwrap();
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/x/{path}"), (*text).to_owned())).collect();
        let reached = reached(&[manifest], &sources);
        let short = |path: &Path| path.strip_prefix("crates/x").unwrap().display().to_string();
        for lost in check(&sources, &reached) {
            assert!(!reached.contains_key(&lost.file));
        }
        reached.iter().map(|(path, reach)| (short(path), *reach)).collect()
    }

    #[test]
    fn both_forms_of_a_folder_are_followed() {
        let files = [
            ("src/lib.rs", "mod a;\npub(crate) mod b;\n"),
            ("src/a.rs", "pub mod deep;\n"),
            ("src/a/deep.rs", ""),
            ("src/b/mod.rs", "mod deep;\n"),
            ("src/b/deep.rs", ""),
            ("src/lost.rs", ""),
        ];
        let reached = reach_of(&files, "");
        assert_eq!(reached.len(), 5);
        assert!(!reached.contains_key("src/lost.rs"));
    }

    #[test]
    fn a_mod_line_in_a_comment_reaches_nothing() {
        assert_eq!(reach_of(&[("src/lib.rs", "// mod a;\n"), ("src/a.rs", "")], "").len(), 1);
    }

    #[test]
    fn test_modules_are_known_as_such() {
        let files = [
            ("src/lib.rs", "mod a;\n#[cfg(test)]\nmod tests;\n"),
            ("src/a.rs", "#[cfg(test)] mod cases;\n"),
            ("src/a/cases.rs", "mod more;\n"),
            ("src/a/cases/more.rs", ""),
            ("src/tests.rs", ""),
            ("tests/all.rs", "mod part;\n"),
            ("tests/part.rs", ""),
        ];
        let reached = reach_of(&files, "");
        assert_eq!(reached.len(), 7);
        assert_eq!(reached["src/a.rs"], Reach::Product);
        for test in ["src/tests.rs", "src/a/cases.rs", "src/a/cases/more.rs", "tests/all.rs"] {
            assert_eq!(reached[test], Reach::Test, "{test}");
        }
    }

    #[test]
    fn paths_may_be_written_out() {
        let files =
            [("src/lib.rs", "#[path = \"other/place.rs\"]\nmod a;\n"), ("src/other/place.rs", ""), ("it/m.rs", "")];
        let reached = reach_of(&files, "[[test]]\nname = \"m\"\npath = \"src/../it/m.rs\"\n");
        assert_eq!(reached.len(), 3);
        assert_eq!(reached["it/m.rs"], Reach::Test);
    }
}

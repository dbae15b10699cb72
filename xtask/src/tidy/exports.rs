//! Names of exported types: one name, one crate. Items made by macros and the generated messages of `wire` are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Finding;
use super::rules::{FILE, Rules, SharedName};
use super::source::Source;

/// How many exceptions there may be.
const EXCEPTIONS: usize = 5;

const WHY: &str = "a reader who meets or searches for a type must not ask which one is meant";

/// A `pub` type: its name, its crate, where it is.
struct Export<'a> {
    name: &'a str,
    from: &'a str,
    file: &'a Path,
    line: usize,
}

/// `sources`: files of the product, without their tests.
pub(super) fn check<'a>(rules: &Rules, sources: impl IntoIterator<Item = &'a Source>) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<Export<'_>>> = BTreeMap::new();
    for export in sources.into_iter().flat_map(exports) {
        by_name.entry(export.name).or_default().push(export);
    }
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for (name, exports) in &by_name {
        let crates: BTreeSet<&str> = exports.iter().map(|export| export.from).collect();
        if crates.len() < 2 {
            continue;
        }
        if let Some(at) = rules.shared_name.iter().position(|it| it.covers(name, &crates)) {
            needed.insert(at);
            continue;
        }
        let list = crates.iter().copied().collect::<Vec<_>>().join(", ");
        found.extend(exports.iter().map(|export| Finding {
            file: export.file.to_owned(),
            line: export.line,
            what: format!("the type name `{name}` is exported from several crates: {list}"),
            why: WHY.to_owned(),
            fix: "name each for what it is in its crate, or make it pub(crate)".to_owned(),
        }));
    }
    found.extend(exceptions(rules, &needed));
    found
}

fn exceptions(rules: &Rules, needed: &BTreeSet<usize>) -> Vec<Finding> {
    let finding = |what: String, why: &str, fix: &str| Finding {
        file: FILE.into(),
        line: 1,
        what,
        why: why.to_owned(),
        fix: fix.to_owned(),
    };
    let unneeded = rules.shared_name.iter().enumerate().filter(|(at, _)| !needed.contains(at));
    let mut found: Vec<Finding> = unneeded
        .map(|(_, it)| {
            let what = format!("the shared name {} is not needed", [&it.names[..], &it.crates[..]].concat().join(", "));
            finding(what, "an exception that stays behind hides the next double name", "remove it")
        })
        .collect();
    if rules.shared_name.len() > EXCEPTIONS {
        let what = format!("{} shared names; the limit is {EXCEPTIONS}", rules.shared_name.len());
        found.push(finding(what, WHY, "rename types until the list is short enough"));
    }
    found
}

impl SharedName {
    fn covers(&self, name: &str, crates: &BTreeSet<&str>) -> bool {
        let named = self.names.is_empty() || self.names.iter().any(|it| it == name);
        let within = self.crates.is_empty() || crates.iter().all(|it| self.crates.iter().any(|known| known == it));
        named && within && !(self.names.is_empty() && self.crates.is_empty())
    }
}

fn exports(source: &Source) -> Vec<Export<'_>> {
    let Some(from) = source.path.strip_prefix("crates").ok().and_then(|path| path.iter().next()?.to_str()) else {
        return Vec::new();
    };
    let lines = source.code.lines().take(source.body).enumerate();
    let names = lines.filter_map(|(number, line)| Some((number + 1, type_name(line)?)));
    names.map(|(line, name)| Export { name, from, file: &source.path, line }).collect()
}

fn type_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let name = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(exceptions: &[(&[&str], &[&str])], files: &[(&str, &str)]) -> Vec<(usize, String)> {
        let owned = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        let shared = exceptions.iter().map(|(names, crates)| SharedName {
            names: owned(names),
            crates: owned(crates),
            _why: String::new(),
        });
        let rules = Rules { shared_name: shared.collect(), ..Rules::default() };
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(format!("crates/{path}"), (*text).to_owned())).collect();
        check(&rules, &sources).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    const TWO: [(&str, &str); 2] =
        [("a/src/lib.rs", "//! A.\npub struct Mesh<'a>(&'a str);\n"), ("b/src/x.rs", "pub enum Mesh {\n}\n")];

    #[test]
    fn a_name_exported_from_two_crates_is_found_in_both() {
        let what = "the type name `Mesh` is exported from several crates: a, b".to_owned();
        assert_eq!(found(&[], &TWO), [(2, what.clone()), (1, what)]);
    }

    #[test]
    fn names_inside_one_crate_and_private_names_are_free() {
        let text = "pub trait Mesh {}\n";
        assert_eq!(found(&[], &[("a/src/x.rs", text), ("a/src/y.rs", text)]), []);
        assert_eq!(
            found(&[], &[TWO[0], ("b/src/x.rs", "pub(crate) struct Mesh;\nstruct Mesh;\n// pub struct Mesh;\n")]),
            []
        );
        assert_eq!(found(&[], &[TWO[0], ("b/src/x.rs", "#[cfg(test)]\nmod tests {\n    pub struct Mesh;\n}\n")]), []);
    }

    #[test]
    fn an_exception_names_types_or_a_group_of_crates() {
        assert_eq!(found(&[(&["Mesh"], &[])], &TWO), []);
        assert_eq!(found(&[(&[], &["a", "b"])], &TWO), []);
        assert_eq!(found(&[(&[], &["a"])], &TWO).len(), 3, "both places, and an exception that covers nothing");
    }

    #[test]
    fn exceptions_are_few_and_needed() {
        assert_eq!(found(&[(&["Gone"], &[])], &[]), [(1, "the shared name Gone is not needed".to_owned())]);
        let six: Vec<(&[&str], &[&str])> = vec![(&["Mesh"], &[]); 6];
        assert!(found(&six, &TWO).contains(&(1, "6 shared names; the limit is 5".to_owned())));
    }
}

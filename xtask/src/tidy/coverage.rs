//! docs/internals/coverage.md: every row names an issue, and what is built names a test that exists. The head of that file says how
//! a row is written. Tests that other pages name exist, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;
use super::source::Source;

const FILE: &str = "docs/internals/coverage.md";
/// Pages that name tests in their text.
const PAGES: [&str; 3] = ["docs/reliability.md", "docs/differences.md", "docs/security.md"];
const COLUMNS: [&str; 5] = ["what", "kind", "issue", "where", "test"];
const KINDS: &[&str] = &["mechanism", "setting", "metric", "threshold", "panel", "limit", "remedy"];

pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let known = Known { tests: tests(sources), exists: &|path| root.join(path).exists() };
    let mut found = rows(&text, &known);
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).context(page)?;
        found.extend(missing_tests(page, &text, &known.tests));
    }
    Ok(found)
}

/// Tests named in backticks, such as `xds::delta::tests::first_request`, that do not exist.
fn missing_tests(page: &str, text: &str, tests: &BTreeSet<String>) -> Vec<Finding> {
    let crates: BTreeSet<&str> = tests.iter().filter_map(|test| test.split("::").next()).collect();
    let is_missing = |name: &str| {
        let is_path = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | ':'));
        let in_crate = name.split_once("::").is_some_and(|(first, _)| crates.contains(first));
        is_path && in_crate && !tests.contains(name)
    };
    let lines = text.lines().enumerate().flat_map(|(number, line)| line.split('`').map(move |name| (number + 1, name)));
    let finding = |(line, name): (usize, &str)| Finding {
        file: page.into(),
        line,
        what: format!("test `{name}` does not exist"),
        why: "the page promises a behaviour that this test shows".into(),
        fix: "name the test that shows it now".into(),
    };
    lines.filter(|(_, name)| is_missing(name)).map(finding).collect()
}

struct Known<'a> {
    tests: BTreeSet<String>,
    exists: &'a dyn Fn(&str) -> bool,
}

fn rows(text: &str, known: &Known<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut rows = 0;
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let mut report = |what: String, fix: &str| {
            let why = "the table is the promise of what is built, and who owes the rest";
            found.push(Finding { file: FILE.into(), line: number + 1, what, why: why.into(), fix: fix.into() });
        };
        let Some(cells) = cells(line) else {
            inside = false;
            continue;
        };
        if !inside {
            inside = true;
            if cells != COLUMNS {
                report(
                    format!("a table with other columns: {}", cells.join(" | ")),
                    "use the columns of the head of the file",
                );
            }
        } else if !cells.iter().all(|c| c.chars().all(|c| c == '-' || c == ':')) {
            rows += 1;
            row(&cells, known, &mut report);
        }
    }
    if rows == 0 {
        let what = "no table with rows".to_owned();
        found.push(Finding {
            file: FILE.into(),
            line: 1,
            what,
            why: "an empty promise".into(),
            fix: "write the rows".into(),
        });
    }
    found
}

/// `None`: the line is no row of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn row(cells: &[&str], known: &Known<'_>, report: &mut impl FnMut(String, &str)) {
    let [what, kind, issue, place, test] = cells else {
        report(format!("{} cells instead of 5", cells.len()), "write a bar inside a cell as `&#124;`");
        return;
    };
    if what.is_empty() {
        report("an empty first cell".into(), "say what is promised");
    }
    if !KINDS.contains(kind) {
        report(format!("kind {kind:?}"), &format!("use one of {}", KINDS.join(", ")));
    }
    let is_issue = issue.strip_prefix('#').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
    if !is_issue {
        report(format!("issue {issue:?}"), "name the issue that owes or built it, like #12");
    }
    for path in listed(place).filter(|path| !(known.exists)(path)) {
        report(format!("`{path}` does not exist"), "name the file or folder where it is built, or -");
    }
    for test in listed(test) {
        let is_path = test.contains('/') && !test.contains("::");
        let is_there = if is_path { (known.exists)(test) } else { known.tests.contains(test) };
        if !is_there {
            let fix = "name a test as cargo does with its crate in front (`xds::delta::tests::first_request`), or a file; `-` while it is not built";
            report(format!("test `{test}` does not exist"), fix);
        }
    }
}

/// The entries of a cell, which are written in backticks or bare, with commas between them; `-` and nothing are none.
fn listed(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(|entry| entry.trim().trim_matches('`')).filter(|entry| !entry.is_empty() && *entry != "-")
}

/// Every test function as `crate::module::name`. An inline `mod tests` is part of the name.
fn tests(sources: &[Source]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources {
        let Some(module) = module(&source.path) else { continue };
        let mut is_test = false;
        let mut inline: Vec<(usize, &str)> = Vec::new();
        for line in source.code.lines() {
            let code = line.trim_start();
            let indent = line.len() - code.len();
            let item =
                ["pub(crate) ", "pub(super) "].iter().find_map(|public| code.strip_prefix(public)).unwrap_or(code);
            if let Some(name) = item.strip_prefix("mod ").and_then(|m| m.trim_end().strip_suffix('{')) {
                inline.retain(|(outer, _)| *outer < indent);
                inline.push((indent, name.trim()));
            } else if code.starts_with("#[") {
                is_test |= code.split(['#', '[', ']', '(', ' ']).any(|w| w == "test" || w.ends_with("::test"));
            } else if let Some(name) = function(code) {
                if is_test {
                    inline.retain(|(outer, _)| *outer < indent);
                    let path = inline.iter().map(|(_, m)| *m).chain([name]);
                    found.insert(path.fold(module.clone(), |whole, part| format!("{whole}::{part}")));
                }
                is_test = false;
            }
        }
    }
    found
}

fn function(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub ").unwrap_or(code);
    let code = code.strip_prefix("async ").unwrap_or(code);
    code.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// `crates/xds/src/a/b.rs` is `xds::a::b`, `crates/xds/tests/all/c.rs` is `xds::all::c`.
fn module(path: &Path) -> Option<String> {
    let parts: Vec<&str> = path.iter().filter_map(|p| p.to_str()).collect();
    let (name, rest) = match parts[..] {
        ["crates", name, "src" | "tests", ref rest @ ..] => (name, rest),
        ["xtask", "src" | "tests", ref rest @ ..] => ("xtask", rest),
        _ => return None,
    };
    let mut module: PathBuf = rest.iter().collect();
    module.set_extension("");
    if matches!(module.file_name()?.to_str()?, "mod" | "lib" | "main") {
        module.pop();
    }
    Some(module.iter().filter_map(|p| p.to_str()).fold(name.to_owned(), |whole, part| format!("{whole}::{part}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(row: &str) -> Vec<String> {
        let text = "#[test]\nfn a() {}\n#[cfg(test)]\nmod tests {\n    #[tokio::test]\n    async fn b() {}\n    fn helper() {}\n}\n";
        let sources = [Source::new("crates/xds/src/delta/mod.rs", text.into())];
        let known = Known { tests: tests(&sources), exists: &|path| path == "crates/xds" };
        let text = format!("Text.\n\n| what | kind | issue | where | test |\n|---|---|---|---|---|\n{row}\n");
        rows(&text, &known).into_iter().map(|f| f.what).collect()
    }

    const NONE: [String; 0] = [];

    #[test]
    fn good_rows_pass() {
        assert_eq!(check("| nonces | mechanism | #3 | `crates/xds` | `xds::delta::tests::b` |"), NONE);
        assert_eq!(check("| nonces | mechanism | #3 | crates/xds | `xds::delta::a`, `crates/xds` |"), NONE);
        assert_eq!(check("| later | panel | #12 | - | - |"), NONE);
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        for test in ["xds::delta::tests::gone", "xds::delta::tests::helper", "xds::delta::b", "crates/gone", "b"] {
            assert_eq!(check(&format!("| x | metric | #3 | - | {test} |")), [format!("test `{test}` does not exist")]);
        }
    }

    #[test]
    fn a_page_that_names_a_missing_test_is_found() {
        let tests = BTreeSet::from(["xds::delta::tests::b".to_owned()]);
        let text = "`xds::delta::tests::b` and\n`xds::delta::tests::gone`, `xds::Resource`, `std::mem::take`";
        let found: Vec<_> = missing_tests("p.md", text, &tests).into_iter().map(|f| (f.line, f.what)).collect();
        assert_eq!(found, [(2, "test `xds::delta::tests::gone` does not exist".to_owned())]);
    }

    #[test]
    fn a_row_names_an_issue() {
        assert_eq!(check("| x | metric | - | - | - |"), ["issue \"-\""]);
        assert_eq!(check("| x | metric |  | - | - |"), ["issue \"\""]);
    }

    #[test]
    fn other_mistakes() {
        assert_eq!(check("| x | metrics | #3 | - | - |"), ["kind \"metrics\""]);
        assert_eq!(check("| x | metric | #3 | src/gone.rs | - |"), ["`src/gone.rs` does not exist"]);
        assert_eq!(check("| x | metric | #3 |"), ["3 cells instead of 5"]);
        assert_eq!(check(""), ["no table with rows"]);
    }
}

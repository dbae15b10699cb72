//! Rules for one Rust file: first line, size, name, banned code. How files hang together is modules.rs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::code::code_only;
use super::modules::Reach;
use super::rules::{FILE, Rules};
use super::{Finding, contains_word};

/// Lines before the tests of a file.
const LIMIT: usize = 600;

const BANNED_NAMES: &[&str] = &["util", "utils", "common", "helpers", "manager", "types"];

#[derive(Debug)]
pub(super) struct Source {
    /// Relative to the root of the project.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// `text` without comments and strings.
    pub(super) code: String,
    /// Number of lines before the test module at the foot, or of all.
    pub(super) body: usize,
}

impl Source {
    pub(super) fn new(path: impl Into<PathBuf>, text: String) -> Source {
        let code = code_only(&text);
        let body = body(&code);
        Source { path: path.into(), text, code, body }
    }

    fn finding(&self, line: usize, what: String, why: &str, fix: &str) -> Finding {
        Finding { file: self.path.clone(), line, what, why: why.to_owned(), fix: fix.to_owned() }
    }
}

pub(super) fn read_all(root: &Path, files: &[PathBuf]) -> Result<Vec<Source>> {
    let rust = files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs"));
    rust.map(|path| {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        Ok(Source::new(path, text))
    })
    .collect()
}

pub(super) fn check(rules: &Rules, source: &Source, reach: Reach) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(first_line(source));
    found.extend(name(source));
    if reach != Reach::Test {
        found.extend(size(rules, source));
        found.extend(banned_code(rules, source));
    }
    if source.path.starts_with("crates/views/src") {
        found.extend(asynchronous_code(source));
    }
    if reach == Reach::Product {
        found.extend(glob_exports(source));
    }
    found
}

fn first_line(source: &Source) -> Option<Finding> {
    let ok = source.text.strip_prefix("//!").is_some_and(|rest| !rest.lines().next().unwrap_or("").trim().is_empty());
    (!ok).then(|| {
        let why = "a reader learns from line one what a file holds and what it leaves out";
        source.finding(1, "the first line is not a `//!` sentence".into(), why, "write it")
    })
}

fn name(source: &Source) -> Option<Finding> {
    let stem = source.path.file_stem()?.to_str()?;
    let folder = source.path.parent()?.file_name().and_then(|f| f.to_str()).unwrap_or("");
    let banned = BANNED_NAMES.iter().find(|b| **b == stem || (**b == folder && stem == "mod"))?;
    let why = "a file is named for the noun inside it; what fits nowhere belongs with its caller";
    Some(source.finding(1, format!("a file named `{banned}`"), why, "name it for what it holds"))
}

fn size(rules: &Rules, source: &Source) -> Option<Finding> {
    let limit = rules.size.iter().find(|s| s.file == source.path).map_or(LIMIT, |s| s.lines);
    (source.body > limit).then(|| {
        let what = format!("{} lines before the tests; the limit is {limit}", source.body);
        let fix = format!("split it; a catalogue may be listed in {FILE} with its reason");
        source.finding(limit + 1, what, "long files are read by nobody", &fix)
    })
}

/// An exception that is not needed any more hides the next one.
pub(super) fn unused_sizes(rules: &Rules, sources: &[Source]) -> Vec<Finding> {
    let needed = |file: &Path| sources.iter().any(|s| s.path == file && s.body > LIMIT);
    let unused = rules.size.iter().filter(|s| !needed(&s.file));
    unused
        .map(|s| Finding {
            file: FILE.into(),
            line: 1,
            what: format!("the size exception for {} is not needed", s.file.display()),
            why: "an exception that stays behind hides the next long file".into(),
            fix: "remove it".into(),
        })
        .collect()
}

fn banned_code(rules: &Rules, source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in source.code.lines().take(source.body).enumerate() {
        for ban in &rules.code {
            let here = ban.folders.is_empty() || ban.folders.iter().any(|f| source.path.starts_with(f));
            if here && contains_word(line, &ban.text) {
                found.push(source.finding(number + 1, format!("`{}`", ban.text), &ban.why, &ban.fix));
            }
        }
    }
    found
}

fn asynchronous_code(source: &Source) -> Vec<Finding> {
    let lines = source.code.lines().take(source.body).enumerate();
    let bad = lines.filter(|(_, line)| {
        let other_tokio = line.match_indices("tokio::").any(|(at, t)| !line[at + t.len()..].starts_with("sync"));
        other_tokio || contains_word(line, "async") || line.contains(".await")
    });
    let why = "views is called by the streams and never waits; of tokio it may hold the channels of `tokio::sync` only";
    bad.map(|(n, _)| source.finding(n + 1, "asynchronous code in views".into(), why, "move it to xds or meltemi"))
        .collect()
}

fn glob_exports(source: &Source) -> Vec<Finding> {
    let lines = source.code.lines().take(source.body).enumerate();
    let globs = lines.filter(|(_, l)| l.trim_start().starts_with("pub use ") && l.trim_end().ends_with("::*;"));
    let why = "what a crate promises to others is a list of names";
    globs.map(|(n, _)| source.finding(n + 1, "a glob in `pub use`".into(), why, "name what is meant")).collect()
}

/// Lines before the first `#[cfg(test)]` module at the left margin.
fn body(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let starts_tests = |at: &usize| {
        let Some(rest) = lines[*at].strip_prefix("#[cfg(test)]") else { return false };
        let mut following = std::iter::once(rest).chain(lines[at + 1..].iter().copied()).map(str::trim);
        let item = following.find(|l| !l.is_empty() && !l.starts_with("#["));
        item.is_some_and(|l| l.starts_with("mod ") || l.starts_with("pub mod ") || l.starts_with("pub(crate) mod "))
    };
    (0..lines.len()).find(starts_tests).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let rules = Rules::read(crate::project::root()).unwrap();
        let found = check(&rules, &Source::new(path, text.to_owned()), Reach::Product);
        found.into_iter().map(|f| (f.line, f.what)).collect()
    }

    #[test]
    fn first_line_must_say_something() {
        assert_eq!(found("a.rs", "//! Holds x.\n"), []);
        for text in ["", "use x;\n", "//!\n//! late\n", "/// item\n"] {
            assert_eq!(found("a.rs", text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn rejects_vague_names() {
        assert_eq!(found("crates/x/src/helpers.rs", "//! X.\n").len(), 1);
        assert_eq!(found("crates/x/src/util/mod.rs", "//! X.\n").len(), 1);
        assert_eq!(found("crates/x/src/util/retry.rs", "//! X.\n"), []);
    }

    #[test]
    fn only_lines_before_the_tests_count() {
        let long = |n: usize| format!("//! X.\n{}", "fn f() {}\n".repeat(n));
        assert_eq!(found("a.rs", &long(599)), []);
        assert_eq!(found("a.rs", &long(600)).len(), 1);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", long(599), "fn f() {}\n".repeat(99));
        assert_eq!(found("a.rs", &tested), []);
    }

    #[test]
    fn a_test_only_function_does_not_end_the_body() {
        assert_eq!(body("fn a() {}\n#[cfg(test)]\nfn b() {}\nfn c() {}\n"), 4);
        assert_eq!(body("fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {}\n"), 1);
        assert_eq!(body("fn a() {}\n#[cfg(test)] mod tests;\n"), 1);
    }

    #[test]
    fn rejects_unwrap_outside_tests() {
        let code = "//! X.\nfn f() { x.unwrap() }\n";
        assert_eq!(found("a.rs", code), [(2, "`.unwrap()`".to_owned())]);
        assert_eq!(found("a.rs", "//! X.\n// x.unwrap()\n#[cfg(test)]\nmod t { fn f() { x.unwrap() } }\n"), []);
        assert_eq!(found("a.rs", "//! X.\nfn f() { x.unwrap_or(1) }\n"), []);
    }

    #[test]
    fn rejects_the_clock_in_pure_crates_only() {
        let code = "//! X.\nlet now = Instant::now();\n";
        assert_eq!(found("crates/model/src/a.rs", code).len(), 1);
        assert_eq!(found("crates/xds/src/a.rs", code), []);
        assert_eq!(found("crates/model/src/a.rs", "//! X.\nstruct InstantRetry;\n"), []);
    }

    #[test]
    fn views_may_hold_channels_and_nothing_else_of_tokio() {
        assert_eq!(found("crates/views/src/a.rs", "//! X.\nuse tokio::sync::watch;\n"), []);
        assert_eq!(found("crates/views/src/a.rs", "//! X.\nuse tokio::{sync::watch, time};\n").len(), 1);
        assert_eq!(found("crates/views/src/a.rs", "//! X.\nasync fn f() {}\n").len(), 1);
    }

    #[test]
    fn globs_are_not_exported() {
        assert_eq!(found("crates/x/src/lib.rs", "//! X.\npub use a::*;\n").len(), 1);
        assert_eq!(found("crates/x/src/lib.rs", "//! X.\nuse a::*;\n"), []);
    }

    #[test]
    fn an_exception_must_be_needed() {
        let mut rules = Rules::default();
        rules.size.push(super::super::rules::Size { file: "a.rs".into(), lines: 700, _why: "list".into() });
        let long = Source::new("a.rs", format!("//! X.\n{}", "fn f() {}\n".repeat(650)));
        assert_eq!(check(&rules, &long, Reach::Product), []);
        assert_eq!(unused_sizes(&rules, &[long]), []);
        assert_eq!(unused_sizes(&rules, &[Source::new("a.rs", "//! X.\n".into())]).len(), 1);
    }
}

//! ARCHITECTURE.md: every file that it names exists, and no list of steps is longer than a reader can follow.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

const FILE: &str = "ARCHITECTURE.md";
/// Of one path through the code.
const MAX_STEPS: usize = 12;

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let exists = |path: &str| root.join(path).exists() || root.join("crates").join(path).exists();
    Ok(text.lines().enumerate().flat_map(|(number, line)| findings(number + 1, line, &exists)).collect())
}

fn findings(number: usize, line: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let report = |what: String, fix: &str| Finding {
        file: FILE.into(),
        line: number,
        what,
        why: "the page is the map that newcomers follow".into(),
        fix: fix.into(),
    };
    let named = line.split('`').skip(1).step_by(2).filter(|name| name.contains('/') && name.ends_with(".rs"));
    let paths = named.flat_map(alternatives).filter(|path| !path.contains(['*', '<']));
    let missing = paths.filter(|path| !exists(path));
    let mut found: Vec<Finding> =
        missing.map(|path| report(format!("`{path}` does not exist"), "name the file where it is now")).collect();
    let step = line.split_once(". ").and_then(|(number, _)| number.parse::<usize>().ok());
    if step.is_some_and(|step| step > MAX_STEPS) {
        found.push(report(format!("more than {MAX_STEPS} steps"), "shorten the path, or its description"));
    }
    found
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
        Some((start, (names, end))) => names.split(',').map(|name| format!("{start}{name}{end}")).collect(),
        None => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        findings(1, line, &|path| path.starts_with("there/")).len()
    }

    #[test]
    fn named_files_exist() {
        assert_eq!(count("see `there/a.rs`, `there/{b,c}.rs`, `gone/*.rs`, `a word`, `there/`"), 0);
        assert_eq!(count("see `gone/a.rs` and `gone/{b,c}.rs`"), 3);
    }

    #[test]
    fn a_path_has_at_most_twelve_steps() {
        assert_eq!((count("12. the last"), count("13. one more")), (0, 1));
    }
}

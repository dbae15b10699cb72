//! ARCHITECTURE.md: every file that it names exists, and no list of steps has more steps or files than a reader can follow.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

const FILE: &str = "ARCHITECTURE.md";
/// Of one path through the code.
const MAX_STEPS: usize = 12;
const MAX_FILES: usize = 25;

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let exists = |path: &str| root.join(path).exists() || root.join("crates").join(path).exists();
    let mut found: Vec<Finding> =
        text.lines().enumerate().flat_map(|(number, line)| missing_files(number + 1, line, &exists)).collect();
    found.extend(long_lists(&text));
    Ok(found)
}

fn report(line: usize, what: String, fix: &str) -> Finding {
    let why = "the page is the map that newcomers follow".into();
    Finding { file: FILE.into(), line, what, why, fix: fix.into() }
}

fn missing_files(number: usize, line: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let missing = files(line).filter(|path| !exists(path));
    missing.map(|path| report(number, format!("`{path}` does not exist"), "name the file where it is now")).collect()
}

/// Lists of steps with too many steps, or too many files in all steps together.
fn long_lists(text: &str) -> Vec<Finding> {
    let (mut found, mut list_files) = (Vec::new(), BTreeSet::new());
    for (index, line) in text.lines().enumerate() {
        let Some(step) = step(line) else { continue };
        if step == 1 {
            list_files.clear();
        }
        let before = list_files.len();
        list_files.extend(files(line));
        if before <= MAX_FILES && list_files.len() > MAX_FILES {
            found.push(report(index + 1, format!("more than {MAX_FILES} files in a list"), "shorten the path"));
        }
        if step > MAX_STEPS {
            found.push(report(
                index + 1,
                format!("more than {MAX_STEPS} steps"),
                "shorten the path, or its description",
            ));
        }
    }
    found
}

/// `3. what happens` is step 3.
fn step(line: &str) -> Option<usize> {
    line.split_once(". ").and_then(|(number, _)| number.parse().ok())
}

fn files(line: &str) -> impl Iterator<Item = String> {
    let named = line.split('`').skip(1).step_by(2).filter(|name| name.contains('/') && name.ends_with(".rs"));
    named.flat_map(alternatives).filter(|path| !path.contains(['*', '<']))
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
        missing_files(1, line, &|path| path.starts_with("there/")).len()
    }

    #[test]
    fn named_files_exist() {
        assert_eq!(count("see `there/a.rs`, `there/{b,c}.rs`, `gone/*.rs`, `a word`, `there/`"), 0);
        assert_eq!(count("see `gone/a.rs` and `gone/{b,c}.rs`"), 3);
    }

    #[test]
    fn a_path_has_at_most_twelve_steps() {
        assert_eq!((long_lists("12. the last").len(), long_lists("13. one more").len()), (0, 1));
    }

    #[test]
    fn a_path_has_at_most_twenty_five_files() {
        let steps = |count: usize| -> String {
            let names: Vec<String> = (0..count).map(|at| format!("`a/{at}.rs`")).collect();
            let lines =
                names.chunks(3).enumerate().map(|(at, names)| format!("{}. {}, `a/0.rs`\n", at + 1, names.join(", ")));
            lines.collect()
        };
        assert_eq!((long_lists(&steps(25)).len(), long_lists(&steps(26)).len()), (0, 1));
        assert!(long_lists(&steps(15).repeat(2)).is_empty(), "each list counts by itself");
    }
}

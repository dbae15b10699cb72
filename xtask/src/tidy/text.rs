//! Words that must not appear in any text of the project. Recorded answers of others are left out: they are not our words.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::rules::{FILE, Rules, Word};
use super::{Finding, contains_word};

const EXTENSIONS: &[&str] = &["rs", "md", "toml", "yaml", "yml", "proto", "py", "sh", "txt"];

/// The lock file is cargo's text, the corpus istiod's, and the rules must be able to name what they ban.
const LEFT_OUT: &[&str] = &["Cargo.lock", "tests/parity", FILE, "xtask/src/tidy"];

pub(super) fn check(root: &Path, rules: &Rules, files: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for path in files.iter().filter(|path| is_our_text(path)) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        found.extend(words(&rules.word, path, &text));
    }
    Ok(found)
}

pub(super) fn is_our_text(path: &Path) -> bool {
    let known = path.extension().and_then(|e| e.to_str()).is_some_and(|e| EXTENSIONS.contains(&e));
    (known || path.starts_with(".ci")) && !LEFT_OUT.iter().any(|out| path.starts_with(out))
}

fn words(words: &[Word], path: &Path, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|w| contains_word(line, &w.text)) {
            let what = format!("`{}`", word.text);
            let (why, fix) = (word.why.clone(), word.fix.clone());
            found.push(Finding { file: path.to_owned(), line: number + 1, what, why, fix });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let rules = Rules::read(crate::project::root()).unwrap();
        words(&rules.word, Path::new("a.md"), text).len()
    }

    #[test]
    fn plans_hosts_and_home_folders_are_found() {
        assert_eq!(found("fine\n// TODO later\n"), 1);
        assert_eq!(found("see https://pypi.org/x\n"), 1);
        assert_eq!(found("in /home/me/x\n"), 1);
        assert_eq!(found("MASTODON TODOS /homework/\n"), 0);
    }

    #[test]
    fn the_rules_may_name_what_they_ban() {
        assert!(is_our_text(Path::new("docs/a.md")));
        assert!(is_our_text(Path::new(".ci/run")));
        assert!(!is_our_text(Path::new("xtask/tidy.toml")));
        assert!(!is_our_text(Path::new("tests/parity/cases/a/in.yaml")));
        assert!(!is_our_text(Path::new("logo.png")));
    }
}

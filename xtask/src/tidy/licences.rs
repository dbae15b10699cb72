//! Licences of all dependencies against the list that deny.toml allows. Reads what `cargo metadata` says of them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::Finding;
use crate::project;

const FILE: &str = "deny.toml";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let deny: Deny = toml::from_str(&text).context(FILE)?;
    let packages = packages()?;
    let outside = packages.iter().filter(|p| !p["source"].is_null());
    Ok(outside.filter_map(|package| finding(&deny.licenses, package)).collect())
}

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

impl Licenses {
    fn allowed_for(&self, package: &str) -> Vec<String> {
        let excepted = self.exceptions.iter().filter(|e| e.name == package).flat_map(|e| &e.allow);
        self.allow.iter().chain(excepted).cloned().collect()
    }
}

fn finding(rules: &Licenses, package: &Value) -> Option<Finding> {
    let licence = package["license"].as_str().unwrap_or("");
    let allowed = rules.allowed_for(package["name"].as_str().unwrap_or("?"));
    let fix = "use another package; or, after reading the licence, allow it in deny.toml with the reason".to_owned();
    match is_allowed(licence, &allowed) {
        Ok(true) => None,
        verdict => Some(Finding {
            file: FILE.into(),
            line: 1,
            what: format!(
                "{} {} has licence {licence:?}, {}",
                package["name"].as_str().unwrap_or("?"),
                package["version"].as_str().unwrap_or("?"),
                verdict.err().map_or("which is not allowed".to_owned(), |e| e.to_string()),
            ),
            why: "what we ship must be free to use under Apache-2.0".into(),
            fix,
        }),
    }
}

/// Offline first: whoever has built the project has all that is needed.
fn packages() -> Result<Vec<Value>> {
    let ask = |extra: &[&str]| -> Result<Vec<Value>> {
        let out =
            project::cargo(["metadata", "--format-version=1"]).args(extra).output().context("run cargo metadata")?;
        if !out.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        let mut found: Value = serde_json::from_slice(&out.stdout).context("read cargo metadata")?;
        serde_json::from_value(found["packages"].take()).context("read cargo metadata")
    };
    ask(&["--offline"]).or_else(|_| ask(&[]))
}

/// An SPDX expression: AND binds tighter than OR; a slash is an old way to write OR.
fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let verdict = any(&mut words, allowed)?;
    match words.next() {
        None => Ok(verdict),
        Some(word) => bail!("which cannot be read at {word:?}"),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut verdict = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        verdict |= all(words, allowed)?;
    }
    Ok(verdict)
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut verdict = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        verdict &= one(words, allowed)?;
    }
    Ok(verdict)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let word = words.next().context("which is incomplete")?;
    if word == "(" {
        let verdict = any(words, allowed)?;
        words.next_if_eq(&")").context("which lacks a bracket")?;
        return Ok(verdict);
    }
    let name = match words.next_if_eq(&"WITH") {
        Some(_) => format!("{word} WITH {}", words.next().context("which is incomplete")?),
        // A plus means this version or a later one.
        None => word.strip_suffix('+').unwrap_or(word).to_owned(),
    };
    Ok(allowed.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> Option<bool> {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_allowed(expression, &allowed).ok()
    }

    #[test]
    fn one_of_several_is_enough() {
        assert_eq!(check("MIT"), Some(true));
        assert_eq!(check("GPL-3.0 OR MIT"), Some(true));
        assert_eq!(check("GPL-3.0/MIT"), Some(true));
        assert_eq!(check("GPL-3.0"), Some(false));
        assert_eq!(check("MIT+"), Some(true));
    }

    #[test]
    fn all_of_several_are_needed() {
        assert_eq!(check("MIT AND Apache-2.0"), Some(true));
        assert_eq!(check("MIT AND GPL-3.0"), Some(false));
        assert_eq!(check("(MIT OR GPL-3.0) AND GPL-3.0"), Some(false));
        assert_eq!(check("GPL-3.0 AND GPL-3.0 OR MIT"), Some(true));
    }

    #[test]
    fn an_exception_is_part_of_the_name() {
        assert_eq!(check("Apache-2.0 WITH LLVM-exception"), Some(true));
        assert_eq!(check("MIT WITH LLVM-exception"), Some(false));
    }

    #[test]
    fn rejects_missing_and_malformed_licences() {
        for expression in ["", "(MIT", "MIT MIT", "MIT OR"] {
            assert_eq!(check(expression), None, "{expression:?}");
        }
    }

    #[test]
    fn a_rejected_package_is_named() {
        let package = serde_json::json!({"name": "x", "version": "1.0.0", "license": "GPL-3.0"});
        let rules = |text: &str| toml::from_str::<Deny>(text).unwrap().licenses;
        let what = finding(&rules("[licenses]\nallow = [\"MIT\"]\n"), &package).unwrap().what;
        assert_eq!(what, "x 1.0.0 has licence \"GPL-3.0\", which is not allowed");
        let excepted = "[licenses]\nallow = []\nexceptions = [{crate = \"x\", allow = [\"GPL-3.0\"]}]\n";
        assert_eq!(finding(&rules(excepted), &package), None);
    }
}

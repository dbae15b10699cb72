//! `cargo xtask tidy`: the rules that no other tool knows. Each rule is a function from files to findings; lists are in
//! xtask/tidy.toml and xtask/words.toml.

mod architecture;
mod code;
mod coverage;
mod dependencies;
mod edges;
mod exports;
mod functions;
mod licences;
mod links;
mod modules;
mod protocol;
mod rules;
mod source;
mod text;
mod vocabulary;

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::project;
use modules::Reach;
use rules::Rules;
use source::Source;

/// One thing that is wrong: where, what, why it matters, what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: PathBuf,
    line: usize,
    what: String,
    why: String,
    fix: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, line, what, why, fix } = self;
        write!(f, "{}:{line}: {what}\n    why: {why}\n    do:  {fix}", file.display())
    }
}

pub(crate) fn run() -> Result<()> {
    let findings = findings(project::root())?;
    if findings.is_empty() {
        return Ok(());
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    bail!("tidy: {} findings", findings.len())
}

fn findings(root: &Path) -> Result<BTreeSet<Finding>> {
    let rules = Rules::read(root)?;
    let files = project::files(root)?;
    let sources = source::read_all(root, &files)?;
    let manifests = edges::read_all(root, &files)?;

    let mut found = Vec::new();
    found.extend(edges::check(&rules, &manifests));
    let reached = modules::reached(&manifests, &sources);
    found.extend(modules::check(&sources, &reached));
    for source in &sources {
        let reach = reached.get(&source.path).copied().unwrap_or_default();
        found.extend(source::check(&rules, source, reach));
    }
    let is_product = |source: &&Source| reached.get(&source.path) == Some(&Reach::Product);
    found.extend(sources.iter().filter(is_product).flat_map(functions::check));
    found.extend(protocol::check(&sources));
    found.extend(exports::check(&rules, sources.iter().filter(is_product)));
    found.extend(source::unused_sizes(&rules, &sources));
    found.extend(text::check(root, &rules, &files)?);
    found.extend(vocabulary::check(root, &files)?);
    found.extend(architecture::check(root)?);
    found.extend(coverage::check(root, &sources)?);
    found.extend(dependencies::check(root, &manifests)?);
    found.extend(dependencies::unused(&rules, &manifests, &sources));
    found.extend(licences::check(root)?);
    found.extend(links::check(root, &files)?);
    Ok(found.into_iter().collect())
}

/// Number of the first line that holds `needle`; 1 when none does, which is where a person then looks first.
fn line_of(text: &str, needle: &str) -> usize {
    text.lines().position(|line| line.contains(needle)).map_or(1, |at| at + 1)
}

/// `needle` in `line`, but not as the middle of a longer name.
fn contains_word(line: &str, needle: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + needle.len()..].chars().next();
        let open = !(needle.starts_with(is_name) && before.is_some_and(is_name));
        let close = !(needle.ends_with(is_name) && after.is_some_and(is_name));
        open && close
    })
}

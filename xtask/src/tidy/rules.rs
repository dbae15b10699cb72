//! The lists of xtask/tidy.toml as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

pub(super) const FILE: &str = "xtask/tidy.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    pub(super) edges: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(super) fence: Vec<Fence>,
    #[serde(default)]
    pub(super) code: Vec<Code>,
    #[serde(default)]
    pub(super) word: Vec<Word>,
    #[serde(default)]
    pub(super) size: Vec<Size>,
    #[serde(default)]
    pub(super) shared_name: Vec<SharedName>,
    #[serde(default)]
    pub(super) silent_dependency: Vec<SilentDependency>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fence {
    pub(super) dependencies: Vec<String>,
    pub(super) only_in: Vec<String>,
    pub(super) why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Code {
    pub(super) text: String,
    /// Folders where it is banned; empty: everywhere.
    #[serde(rename = "in")]
    pub(super) folders: Vec<PathBuf>,
    pub(super) why: String,
    pub(super) fix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) why: String,
    pub(super) fix: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Size {
    pub(super) file: PathBuf,
    pub(super) lines: usize,
    /// Not read by the program, but nobody may leave it out.
    #[serde(rename = "why")]
    pub(super) _why: String,
}

/// Types of one name that several crates may export: of these names, among these crates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedName {
    /// Empty: any.
    #[serde(default)]
    pub(super) names: Vec<String>,
    /// Empty: any.
    #[serde(default)]
    pub(super) crates: Vec<String>,
    /// Not read by the program, but nobody may leave it out.
    #[serde(rename = "why")]
    pub(super) _why: String,
}

/// A dependency that a crate needs without naming it in its code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SilentDependency {
    pub(super) name: String,
    #[serde(rename = "crate")]
    pub(super) package: String,
    /// Not read by the program, but nobody may leave it out.
    #[serde(rename = "why")]
    pub(super) _why: String,
}

impl Rules {
    pub(super) fn read(root: &Path) -> Result<Rules> {
        let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
        toml::from_str(&text).context(FILE)
    }
}

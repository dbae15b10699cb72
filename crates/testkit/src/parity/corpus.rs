//! The corpus in `tests/parity`: which cases there are, which are claimed, which a live Envoy cannot take.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::Case;
use crate::environment;

pub struct Corpus {
    pub folder: PathBuf,
    /// Cases of later work. The list may only shrink.
    pub unclaimed: BTreeSet<String>,
    /// Case name and why its answers cannot all become active in a stock Envoy.
    pub not_loadable: BTreeMap<String, String>,
    /// All case names.
    pub names: BTreeSet<String>,
}

impl Corpus {
    pub fn open() -> Result<Corpus> {
        let folder = environment::repository().join("tests/parity");
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            if entry.path().join("proxies.yaml").exists() {
                names.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        let lines = |file: &str| -> Result<Vec<String>> {
            let text = fs::read_to_string(folder.join(file)).with_context(|| file.to_owned())?;
            Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
        };
        let unclaimed: BTreeSet<String> = lines("unclaimed.txt")?.into_iter().collect();
        let reason = |line: String| {
            line.split_once(": ").map(|(name, why)| (name.to_owned(), why.to_owned())).with_context(|| line.clone())
        };
        let not_loadable = lines("not-loadable.txt")?.into_iter().map(reason).collect::<Result<BTreeMap<_, _>>>()?;
        if let Some(stranger) = unclaimed.iter().chain(not_loadable.keys()).find(|name| !names.contains(*name)) {
            bail!("{stranger} is listed, but there is no such case");
        }
        Ok(Corpus { folder, unclaimed, not_loadable, names })
    }

    pub fn case(&self, name: &str) -> Result<Case> {
        Case::load(&self.folder.join(name))
    }

    /// Names of cases that must hold: the claimed ones, or those that MELTEMI_CASES names, claimed or not.
    pub fn demanded(&self) -> BTreeSet<String> {
        let wanted = self.wanted();
        if environment::wanted_cases().is_some() { wanted } else { &wanted - &self.unclaimed }
    }

    /// Names of cases to run: all, or those that MELTEMI_CASES names.
    pub fn wanted(&self) -> BTreeSet<String> {
        match environment::wanted_cases() {
            Some(wanted) => self.names.intersection(&wanted).cloned().collect(),
            None => self.names.clone(),
        }
    }
}

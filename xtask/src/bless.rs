//! `cargo xtask bless`: rewrites our own golden files (tests/golden). Recorded answers (tests/parity) are evidence; a run that
//! would touch them fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::project;

const GOLDEN: &str = "tests/golden";
const RECORDED: &str = "tests/parity";

pub(crate) fn run() -> Result<()> {
    let root = project::root();
    let (golden, recorded) = (contents(&root.join(GOLDEN))?, contents(&root.join(RECORDED))?);
    let mut command = project::cargo(["test", "--package", "testkit", "--test", "golden"]);
    let status = command.env("MELTEMI_BLESS", "1").status().context("start cargo test")?;
    ensure!(contents(&root.join(RECORDED))? == recorded, "the run changed {RECORDED}, which is evidence; restore it");
    ensure!(status.success(), "the golden test failed; fix that first");
    for (file, what) in differences(&golden, &contents(&root.join(GOLDEN))?) {
        println!("{what} {GOLDEN}/{}", file.display());
    }
    Ok(())
}

type Contents = BTreeMap<PathBuf, Vec<u8>>;

fn contents(folder: &Path) -> Result<Contents> {
    if !folder.exists() {
        return Ok(Contents::new());
    }
    let files = project::files(folder)?;
    files.into_iter().map(|file| Ok((file.clone(), fs::read(folder.join(&file))?))).collect()
}

fn differences(old: &Contents, new: &Contents) -> BTreeMap<PathBuf, &'static str> {
    let removed = old.keys().filter(|file| !new.contains_key(*file)).map(|file| (file.clone(), "removed"));
    let written = new.iter().filter_map(|(file, text)| match old.get(file) {
        None => Some((file.clone(), "new    ")),
        Some(before) if before != text => Some((file.clone(), "changed")),
        Some(_) => None,
    });
    removed.chain(written).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_every_kind_of_difference() {
        let files = |list: &[(&str, &str)]| -> Contents {
            list.iter().map(|(file, text)| (PathBuf::from(file), text.as_bytes().to_vec())).collect()
        };
        let found =
            differences(&files(&[("a", "1"), ("b", "1"), ("c", "1")]), &files(&[("a", "1"), ("b", "2"), ("d", "1")]));
        let expected = [("b", "changed"), ("c", "removed"), ("d", "new    ")];
        assert_eq!(found, expected.map(|(file, what)| (PathBuf::from(file), what)).into());
    }
}

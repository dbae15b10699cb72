//! The licences of everything that is linked into the program: which package has which, and the texts that packages carry.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use super::packages::{Package, Packages};

/// How files with licences and notices begin, in upper case.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

pub(super) fn text(packages: &Packages) -> Result<String> {
    let mut out = "The program contains these packages, under these licences.\n\n".to_owned();
    for package in packages.foreign() {
        writeln!(out, "{} {}: {}", package.name, package.version, package.licence)?;
    }
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.foreign() {
        for text in carried(package)? {
            texts.entry(text).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, packages)| (packages, text)).collect();
    texts.sort();
    for (packages, text) in texts {
        write!(out, "\n{}\n{}\n\n{}\n", "=".repeat(80), packages.join(", "), text.trim_end())?;
    }
    Ok(out)
}

fn carried(package: &Package) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(&package.folder).with_context(|| format!("read {}", package.folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            files.push(entry.path());
        }
    }
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).with_context(|| format!("read {}", file.display()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_named_and_a_text_stands_once() {
        let packages = Packages::of_meltemi().unwrap();
        let text = text(&packages).unwrap();
        for package in packages.foreign() {
            assert!(text.contains(&format!("\n{} {}: {}\n", package.name, package.version, package.licence)));
        }
        let texts: Vec<&str> = text.split(&"=".repeat(80)).collect();
        assert!(texts.len() > 20, "{}", texts.len());
    }
}

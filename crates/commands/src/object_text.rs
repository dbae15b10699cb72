//! The text of objects from a file, a folder or stdin, with the file and line that each of its lines comes from.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// All documents one after the other.
#[derive(Debug, Default)]
pub(super) struct ObjectText {
    pub(super) text: String,
    /// The first line of each file in the text, from 1.
    files: Vec<(u32, String)>,
}

/// As much as a server reads.
const MAX_BYTES: usize = 3 << 20;

impl ObjectText {
    /// `-`: stdin. Of a folder, its YAML and JSON files and those of its folders, hidden ones left out.
    pub(super) fn read(path: &Path) -> Result<ObjectText> {
        let mut all = ObjectText::default();
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
            all.push("stdin", &text);
        } else {
            let mut files = Vec::new();
            list(path, &mut files).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(!files.is_empty(), "{}: there are no YAML or JSON files in it", path.display());
            for file in files {
                let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                all.push(&file.display().to_string(), &text);
            }
        }
        let bytes = all.text.len();
        ensure!(bytes <= MAX_BYTES, "{}: {bytes} bytes of objects are more than 3 MiB", path.display());
        Ok(all)
    }

    fn push(&mut self, file: &str, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str("---\n");
        }
        let line = self.text.lines().count() + 1;
        self.files.push((u32::try_from(line).unwrap_or(u32::MAX), file.to_owned()));
        self.text.push_str(text);
        if !text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// The file of a line of the text, and its line there.
    pub(super) fn place(&self, line: u32) -> Option<(&str, u32)> {
        let (first, file) = self.files.iter().rev().find(|(first, _)| *first <= line)?;
        Some((file, line - first + 1))
    }
}

fn list(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(path)?.map(|entry| entry.map(|it| it.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for entry in entries {
        let hidden = entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let extension = entry.extension().and_then(|it| it.to_str()).unwrap_or_default();
        if !hidden && (entry.is_dir() || ["yaml", "yml", "json"].contains(&extension)) {
            list(&entry, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        for (name, text) in [("a.yaml", "kind: A\nx: 1"), ("b/c.json", "{}\n"), (".d.yaml", "no"), ("e.txt", "no")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let all = ObjectText::read(dir.path()).unwrap();
        assert_eq!(all.text, "kind: A\nx: 1\n---\n{}\n");
        let places: Vec<_> = [1, 2, 4].map(|line| all.place(line).unwrap()).into_iter().collect();
        assert!(places[0].0.ends_with("a.yaml") && places[2].0.ends_with("b/c.json"), "{places:?}");
        assert_eq!(places.iter().map(|it| it.1).collect::<Vec<_>>(), [1, 2, 1]);
        assert!(ObjectText::read(&dir.path().join("none")).is_err());
    }
}

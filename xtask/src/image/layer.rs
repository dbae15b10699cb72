//! The files of an image: folders, files and links by path, written as a tar archive with the same bytes for the same files. Knows nothing of
//! what an image starts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

const FOLDER: u32 = 0o755;
const PROGRAM: u32 = 0o755;
const TEXT: u32 = 0o644;

#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// By path inside the image, without the leading slash: sorted, a folder comes before what is in it.
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum Entry {
    Folder { mode: u32 },
    Text(String),
    Copy { source: PathBuf, mode: u32 },
    Link(String),
}

impl Layer {
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.parents(path);
        self.entries.insert(relative(path), Entry::Folder { mode });
    }

    pub(crate) fn text(&mut self, path: &str, text: &str) {
        self.parents(path);
        self.entries.insert(relative(path), Entry::Text(text.to_owned()));
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.parents(path);
        self.entries.insert(relative(path), Entry::Link(target.to_owned()));
    }

    pub(crate) fn file(&mut self, path: &str, source: &Path) {
        self.copy(path, source, TEXT);
    }

    /// A program with the shared libraries that it needs, which are put where they are on this machine.
    pub(crate) fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        ensure!(source.is_file(), "{} is to be put into an image, and there is no such file", source.display());
        self.copy(path, source, PROGRAM);
        for library in libraries(source)? {
            let at = library.display().to_string();
            if !self.entries.contains_key(&relative(&at)) {
                self.copy(&at, &library, PROGRAM);
            }
        }
        Ok(())
    }

    /// A program that needs no libraries.
    pub(crate) fn static_program(&mut self, path: &str, source: &Path) {
        self.copy(path, source, PROGRAM);
    }

    fn copy(&mut self, path: &str, source: &Path, mode: u32) {
        self.parents(path);
        self.entries.insert(relative(path), Entry::Copy { source: source.to_owned(), mode });
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in relative(path).match_indices('/') {
            self.entries.entry(relative(path)[..at].to_owned()).or_insert(Entry::Folder { mode: FOLDER });
        }
    }

    pub(crate) fn write(&self, to: &mut dyn Write) -> Result<()> {
        let mut archive = Builder::new(to);
        for (path, entry) in &self.entries {
            entry.append(path, &mut archive).with_context(|| format!("put /{path} into an image"))?;
        }
        archive.finish().context("end an image's layer")
    }
}

impl Entry {
    fn append(&self, path: &str, archive: &mut Builder<&mut dyn Write>) -> Result<()> {
        match self {
            Entry::Folder { mode } => {
                archive.append_data(&mut header(EntryType::Directory, *mode, 0), format!("{path}/"), &[][..])?;
            }
            Entry::Text(text) => {
                let size = u64::try_from(text.len())?;
                archive.append_data(&mut header(EntryType::Regular, TEXT, size), path, text.as_bytes())?;
            }
            Entry::Copy { source, mode } => {
                let file = File::open(source).with_context(|| format!("read {}", source.display()))?;
                let size = file.metadata()?.len();
                archive.append_data(&mut header(EntryType::Regular, *mode, size), path, file)?;
            }
            Entry::Link(target) => {
                archive.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
            }
        }
        Ok(())
    }
}

/// Nothing of the machine that makes it: everything is root's and has no time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn relative(path: &str) -> String {
    path.trim_matches('/').to_owned()
}

/// As the dynamic linker of this machine finds them; none for a static program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let out = Command::new("ldd").arg(program).output().context("run ldd")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.contains("linux-vdso")) {
        ensure!(!line.contains("not found"), "{} needs a library that is not here:{line}", program.display());
        let path = line.split("=>").last().unwrap_or(line).split_whitespace().next().unwrap_or_default();
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// The first program of that name on the path.
pub(crate) fn on_path(program: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let usual = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let mut candidates = std::env::split_paths(&folders).chain(usual).map(|folder| folder.join(program));
    let found = candidates.find(|path| path.is_file());
    let found = found.with_context(|| format!("there is no {program} on this machine"))?;
    fs::canonicalize(&found).with_context(|| format!("follow {}", found.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(layer: &Layer) -> Vec<u8> {
        let mut bytes = Vec::new();
        layer.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_same_files_give_the_same_bytes_whatever_the_order() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("file");
        fs::write(&source, "text").unwrap();
        let mut one = Layer::default();
        one.text("/etc/passwd", "root");
        one.file("/usr/share/file", &source);
        let mut other = Layer::default();
        other.file("/usr/share/file", &source);
        other.text("/etc/passwd", "root");
        // Times of files do not count.
        let first = bytes(&one);
        fs::write(&source, "text").unwrap();
        assert_eq!(first, bytes(&other));
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut layer = Layer::default();
        layer.link("/usr/sbin/iptables", "xtables-nft-multi");
        layer.folder("/tmp", 0o1777);
        let bytes = bytes(&layer);
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries: Vec<_> = archive.entries().unwrap().map(|entry| entry.unwrap().header().clone()).collect();
        let paths: Vec<_> = entries.iter().map(|entry| entry.path().unwrap().display().to_string()).collect();
        assert_eq!(paths, ["tmp/", "usr/", "usr/sbin/", "usr/sbin/iptables"]);
        assert_eq!(entries[0].mode().unwrap(), 0o1777);
    }

    #[test]
    fn a_program_brings_its_libraries() {
        let mut layer = Layer::default();
        layer.program("/bin/sh", &on_path("sh").unwrap()).unwrap();
        assert!(layer.entries.keys().any(|path| path.contains("libc.so")), "{:?}", layer.entries.keys());
        let error = Layer::default().program("/bin/none", Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}

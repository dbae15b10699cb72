//! The scan of the paths that a watch named: files and folders that are new, changed, renamed or deleted, at a cost proportional to them. A
//! folder with symbolic links or unreadable parts is left to a full scan, and so is whatever else one path does not show.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::catalog::Change;
use super::name::{is_config, is_hidden, is_temporary};
use super::reading::Reading;
use super::relative::RelativePath;
use super::tree::{Entry, Found, Interest, WatchedDirs, identity};
use super::{Folder, Scan, walk};

/// What changed at some paths. Applied only if all of them could be examined.
#[derive(Default)]
struct Findings {
    readings: Vec<(RelativePath, Reading)>,
    gone: Vec<RelativePath>,
    /// Folders that were new, deleted or listed again, each with the directories that there are to watch now.
    folders: Vec<(PathBuf, WatchedDirs)>,
}

impl Folder {
    /// `None`: a full scan is needed.
    pub(super) fn scan_paths(&mut self, paths: &BTreeSet<PathBuf>) -> Option<Scan> {
        let root = self.plain.clone()?;
        let mut findings = Findings::default();
        let mut walked: Option<&Path> = None;
        for path in paths {
            // Sorted: what is below a folder follows it.
            if walked.is_some_and(|folder| path.starts_with(folder)) {
                continue;
            }
            if self.examine(&root, path, &mut findings)? == Examined::Subtree {
                walked = Some(path);
            }
        }
        let files = self.catalog.files().len() + findings.readings.len();
        // Last: if the folder was replaced meanwhile, nothing of it is known to be gone.
        if files > self.limits.files || !self.is_in_place(&root) {
            return None;
        }
        Some(self.take_findings(findings))
    }

    fn examine(&self, root: &Path, path: &Path, findings: &mut Findings) -> Option<Examined> {
        let relative = path.strip_prefix(root).ok().filter(|relative| !relative.as_os_str().is_empty())?;
        let (parent, name) = (path.parent()?, path.file_name()?);
        if is_hidden(name) || is_temporary(name) {
            return Some(Examined::Path);
        }
        let (file, folder) = (RelativePath::of_file(relative), RelativePath::top().folder(relative.as_os_str()));
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                findings.gone.push(file);
                self.folder_is_gone(path, &folder, findings);
                return Some(Examined::Path);
            }
            Err(_) => return None,
        };
        let is_listed = self.watched_dirs.get(parent).is_some_and(|dir| dir.interest == Interest::All);
        if metadata.is_symlink() || !is_listed {
            return None;
        }
        if metadata.is_dir() {
            findings.gone.push(file);
            self.subtree(root, path, &folder, findings)?;
            return Some(Examined::Subtree);
        }
        self.folder_is_gone(path, &folder, findings);
        if is_config(name) {
            let entry = Entry { path: path.to_owned(), found: Found::new(Ok(metadata)) };
            findings.readings.extend(self.reading(&file, &entry).map(|reading| (file, reading)));
        }
        Some(Examined::Path)
    }

    /// Known files and directories below a path that is no folder, or not any more.
    fn folder_is_gone(&self, path: &Path, folder: &RelativePath, findings: &mut Findings) {
        findings.gone.extend(self.catalog.below(folder).cloned());
        if self.watched_dirs.contains_key(path) {
            findings.folders.push((path.to_owned(), WatchedDirs::new()));
        }
    }

    fn subtree(&self, root: &Path, path: &Path, folder: &RelativePath, findings: &mut Findings) -> Option<()> {
        let tree = walk::subtree(root, path, folder, &self.limits).ok()?;
        if tree.linked || !tree.unlisted.is_empty() {
            return None;
        }
        let readings = tree.files.iter().filter_map(|(file, entry)| Some((file.clone(), self.reading(file, entry)?)));
        findings.readings.extend(readings);
        let missing = self.catalog.below(folder).filter(|file| !tree.files.contains_key(file) && tree.lacks(file));
        findings.gone.extend(missing.cloned());
        findings.folders.push((path.to_owned(), tree.watched_dirs));
        Some(())
    }

    /// The top is the directory that it was.
    fn is_in_place(&self, root: &Path) -> bool {
        let now = fs::canonicalize(&self.root).ok().filter(|real| real == root);
        let now = now.and_then(|real| fs::metadata(real).ok()).map(|metadata| identity(&metadata));
        now.is_some() && now == self.watched_dirs.get(root).map(|dir| dir.identity)
    }

    fn take_findings(&mut self, Findings { readings, gone, folders }: Findings) -> Scan {
        let (mut change, read) = (Change::default(), readings.len());
        for path in gone {
            self.catalog.remove(&path, &mut change);
        }
        for (path, reading) in readings {
            self.catalog.put(&path, reading, &mut change);
        }
        for (top, watched_dirs) in folders {
            let below = self.watched_dirs.range(top.clone()..).take_while(|(path, _)| path.starts_with(&top));
            let stale: Vec<PathBuf> = below.map(|(path, _)| path.clone()).collect();
            for path in &stale {
                self.watched_dirs.remove(path);
            }
            self.watched_dirs.extend(watched_dirs);
            self.watched_dirs_changed = true;
        }
        self.finish_scan(change, BTreeMap::new(), read, true)
    }
}

#[derive(PartialEq, Eq)]
enum Examined {
    Path,
    /// A folder with all below it.
    Subtree,
}

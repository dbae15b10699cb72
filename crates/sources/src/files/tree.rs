//! The folder tree: its files, folders that cannot be listed, and directories to watch.
//! Opens no file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Limits;
use super::name::{CONFIG_MAP_LINK, is_config, is_hidden, is_temporary};
use super::relative::RelativePath;

#[derive(Default)]
pub(super) struct Tree {
    /// The real path of the top.
    pub(super) root: PathBuf,
    /// There are symbolic links: one file may be reached by several paths.
    pub(super) linked: bool,
    pub(super) files: BTreeMap<RelativePath, Entry>,
    /// Folders, and links that may have led to one. Their known files are kept.
    pub(super) unlisted: BTreeMap<RelativePath, Unlisted>,
    pub(super) places: WatchedDirs,
    /// Real paths of the folders that were listed. `None`: its files are read by another path.
    listed: BTreeMap<RelativePath, Option<PathBuf>>,
    /// Links that many files depend on, with their targets. A walk is consistent only if none of them changed meanwhile.
    turnable: Vec<(PathBuf, PathBuf)>,
}

pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) found: Found,
}

impl Entry {
    /// A file that is not reached by a link. `None`: there is none.
    pub(super) fn plain(path: &Path) -> Option<Entry> {
        let metadata = fs::symlink_metadata(path).ok().filter(Metadata::is_file)?;
        Some(Entry { path: path.to_owned(), found: Found::File(Stamp::new(&metadata)) })
    }
}

pub(super) enum Found {
    File(Stamp),
    /// Listed, then gone: the next walk decides.
    Vanished,
    Unusable(String),
}

pub(super) enum Unlisted {
    /// Listed, then gone: the next walk decides.
    Vanished,
    Folder(io::Error),
    /// It is unknown whether it led to a folder.
    Link(io::Error),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("holds more than {limit} {what}, which is the limit")]
    TooMany { what: &'static str, limit: usize },
    #[error("is being replaced faster than it can be read")]
    Unstable,
}

/// Equal stamps: the file was not written in between, unless it was young when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: Identity,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// As `modified`; changes also when permissions change or a time is set back.
    changed: (i64, i64),
}

/// Device and inode: another one means that the path leads elsewhere.
pub(super) type Identity = (u64, u64);

/// Directories to watch, by their real path.
pub(super) type WatchedDirs = BTreeMap<PathBuf, WatchedDir>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedDir {
    pub(super) identity: Identity,
    pub(super) interest: Interest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interest {
    All,
    Names(BTreeSet<OsString>),
}

impl Tree {
    pub(super) fn new(root: &Path, limits: &Limits) -> Result<Tree, WalkError> {
        // The real path, so that a walk stays within one tree even if a link to the root is replaced meanwhile.
        let root = fs::canonicalize(root)?;
        let mut walk = Walk { limits, tree: Tree::default(), entries: 0, links: BTreeMap::new(), seen: HashSet::new() };
        walk.seen.insert(identity(&fs::metadata(&root)?));
        let names = listing(&root)?;
        walk.take(&RelativePath::top(), &root, names)?;
        walk.tree.root = root;
        Ok(walk.tree)
    }

    /// A known file that is not among `files` is gone, as far as can be determined.
    pub(super) fn lacks(&self, file: &RelativePath) -> bool {
        for folder in file.folders() {
            match self.listed.get(&folder) {
                Some(Some(_)) => {}
                Some(None) => return true,
                None if self.unlisted.contains_key(&folder) => return false,
                None => return !self.is_there(&folder, Metadata::is_dir),
            }
        }
        !self.is_there(file, |metadata| !metadata.is_dir())
    }

    /// Asks again: a directory listing can miss a name that is renamed over meanwhile, as on tmpfs.
    fn is_there(&self, path: &RelativePath, sort: fn(&Metadata) -> bool) -> bool {
        let (folder, name) = path.split();
        let real = self.listed.get(&folder).and_then(Option::as_ref);
        real.is_some_and(|real| fs::metadata(real.join(name)).is_ok_and(|metadata| sort(&metadata)))
    }

    pub(super) fn is_consistent(&self) -> bool {
        self.turnable.iter().all(|(link, led)| fs::read_link(link).is_ok_and(|leads| leads == *led))
    }
}

impl Stamp {
    pub(super) fn new(metadata: &Metadata) -> Stamp {
        Stamp {
            identity: identity(metadata),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Written so recently that another write could have the same time, on a file system with coarse timestamps.
    pub(super) fn is_young(&self, now: SystemTime) -> bool {
        const COARSEST: Duration = Duration::from_secs(2);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let age = i128::from(since.as_secs()) - i128::from(self.modified.0);
        age.unsigned_abs() <= u128::from(COARSEST.as_secs())
    }
}

/// Adds the names whose change makes the root another folder: itself, links on the path to it, and missing parts of the path.
pub(super) fn add_anchors(root: &Path, places: &mut WatchedDirs) {
    let Ok(root) = std::path::absolute(root) else { return };
    for step in root.ancestors() {
        let turnable = fs::symlink_metadata(step).map_or(true, |metadata| metadata.is_symlink());
        if let (Some(parent), Some(name)) = (step.parent(), step.file_name())
            && (turnable || step == root)
            && let Ok(parent) = fs::canonicalize(parent)
        {
            watch_name(places, &parent, name);
        }
    }
}

struct Walk<'a> {
    limits: &'a Limits,
    tree: Tree,
    entries: usize,
    /// Links to folders, followed after all real folders, so that files have their real path where there is one.
    links: BTreeMap<RelativePath, PathBuf>,
    /// No link leads to a folder a second time, which rules out loops and exponential growth.
    seen: HashSet<Identity>,
}

impl Walk<'_> {
    fn take(&mut self, top: &RelativePath, path: &Path, names: Vec<(OsString, FileType)>) -> Result<(), WalkError> {
        let mut folders = Vec::new();
        self.folder(top, path, names, &mut folders)?;
        let mut linked = false;
        loop {
            let next = folders.pop().or_else(|| {
                linked = true;
                self.links.pop_first()
            });
            let Some((relative, path)) = next else { return Ok(()) };
            let known = fs::metadata(&path).is_ok_and(|metadata| !self.seen.insert(identity(&metadata)));
            if known && linked {
                self.tree.listed.insert(relative, None);
                continue;
            }
            match listing(&path) {
                Ok(names) => self.folder(&relative, &path, names, &mut folders)?,
                Err(error) => {
                    self.tree.unlisted.insert(relative, Unlisted::folder(error));
                }
            }
        }
    }

    fn folder(
        &mut self,
        relative: &RelativePath,
        path: &Path,
        names: Vec<(OsString, FileType)>,
        folders: &mut Vec<(RelativePath, PathBuf)>,
    ) -> Result<(), WalkError> {
        self.tree.listed.insert(relative.clone(), Some(path.to_owned()));
        self.entries += names.len();
        within(self.entries, self.limits.entries, "entries")?;
        if let Ok(metadata) = fs::metadata(path) {
            let place = WatchedDir { identity: identity(&metadata), interest: Interest::All };
            self.tree.places.insert(path.to_owned(), place);
        }
        // Recorded first: a change between this and the last read of a file must be detected.
        if names.iter().any(|(name, kind)| kind.is_symlink() && name == CONFIG_MAP_LINK) {
            self.record_link_target(path.join(CONFIG_MAP_LINK));
        }
        for (name, kind) in names {
            let below = path.join(&name);
            if is_hidden(&name) || is_temporary(&name) {
                continue;
            }
            if kind.is_dir() {
                folders.push((relative.folder(&name), below));
            } else if kind.is_symlink() {
                self.link(relative, &name, below);
            } else if is_config(&name) {
                let found = Found::new(fs::metadata(&below));
                self.tree.files.insert(relative.file(&name), Entry { path: below, found });
            }
        }
        within(self.tree.files.len(), self.limits.files, "files")
    }

    fn link(&mut self, parent: &RelativePath, name: &OsStr, path: PathBuf) {
        self.tree.linked = true;
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                self.record_link_target(path.clone());
                match fs::canonicalize(&path) {
                    Ok(real) => drop(self.links.insert(parent.folder(name), real)),
                    Err(_) => drop(self.tree.unlisted.insert(parent.folder(name), Unlisted::Vanished)),
                }
            }
            found => {
                if let Err(error) = &found {
                    self.tree.unlisted.insert(parent.folder(name), Unlisted::link(error, &path));
                }
                if !is_config(name) {
                    return;
                }
                if let Ok(real) = fs::canonicalize(&path)
                    && let (Some(folder), Some(name)) = (real.parent(), real.file_name())
                {
                    watch_name(&mut self.tree.places, folder, name);
                }
                let found = Found::new_link(found, &path);
                self.tree.files.insert(parent.file(name), Entry { path, found });
            }
        }
    }

    fn record_link_target(&mut self, link: PathBuf) {
        if let Ok(led) = fs::read_link(&link) {
            self.tree.turnable.push((link, led));
        }
    }
}

impl Found {
    fn new(metadata: io::Result<Metadata>) -> Found {
        match metadata {
            Ok(metadata) if metadata.is_file() => Found::File(Stamp::new(&metadata)),
            Ok(_) => Found::Unusable("is not a regular file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Vanished,
            Err(error) => Found::Unusable(format!("cannot be read: {error}")),
        }
    }

    fn new_link(metadata: io::Result<Metadata>, link: &Path) -> Found {
        match Found::new(metadata) {
            Found::Vanished if fs::symlink_metadata(link).is_ok() => {
                Found::Unusable("is a link that leads nowhere".to_owned())
            }
            found => found,
        }
    }
}

impl Unlisted {
    fn folder(error: io::Error) -> Unlisted {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unlisted::Vanished,
            _ => Unlisted::Folder(error),
        }
    }

    fn link(error: &io::Error, link: &Path) -> Unlisted {
        match fs::symlink_metadata(link) {
            Ok(_) => Unlisted::Link(io::Error::new(error.kind(), error.to_string())),
            Err(_) => Unlisted::Vanished,
        }
    }
}

fn listing(folder: &Path) -> io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type() {
            Ok(kind) => names.push((entry.file_name(), kind)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(names)
}

fn within(count: usize, limit: usize, what: &'static str) -> Result<(), WalkError> {
    if count > limit { Err(WalkError::TooMany { what, limit }) } else { Ok(()) }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

fn watch_name(places: &mut WatchedDirs, folder: &Path, name: &OsStr) {
    let Ok(metadata) = fs::metadata(folder) else { return };
    let nothing = || WatchedDir { identity: identity(&metadata), interest: Interest::Names(BTreeSet::new()) };
    let place = places.entry(folder.to_owned()).or_insert_with(nothing);
    if let Interest::Names(names) = &mut place.interest {
        names.insert(name.to_owned());
    }
}

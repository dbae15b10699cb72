//! The folder tree: its files, folders that cannot be listed, and directories to watch. How it is found is in `walk`.
//! Opens no file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
    pub(super) watched_dirs: WatchedDirs,
    /// Real paths of the folders that were listed. `None`: its files are read by another path.
    pub(super) listed: BTreeMap<RelativePath, Option<PathBuf>>,
    /// Links that many files depend on, with their targets. A walk is consistent only if none of them changed meanwhile.
    pub(super) turnable: Vec<(PathBuf, PathBuf)>,
}

pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) found: Found,
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
    /// Left out, with the reason, so that it does not hold up the others.
    Excluded(WalkError),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum WalkError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("holds more than {limit} {what}, which is the limit")]
    TooMany { what: &'static str, limit: usize },
    #[error("is being replaced faster than it can be read")]
    Unstable,
    #[error("is a file system of the kernel, which holds no configuration")]
    Kernel,
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
    /// Adds what a linked folder led to.
    pub(super) fn extend(&mut self, part: Tree) {
        let Tree { root: _, linked, files, unlisted, watched_dirs, listed, turnable } = part;
        self.linked |= linked;
        self.files.extend(files);
        self.unlisted.extend(unlisted);
        self.listed.extend(listed);
        self.turnable.extend(turnable);
        for (path, dir) in watched_dirs {
            match (self.watched_dirs.get_mut(&path).map(|known| &mut known.interest), dir.interest) {
                (Some(Interest::Names(known)), Interest::Names(names)) => known.extend(names),
                (Some(Interest::All), Interest::Names(_)) => {}
                (_, interest) => drop(self.watched_dirs.insert(path, WatchedDir { identity: dir.identity, interest })),
            }
        }
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

/// The names whose change makes the root another folder, each in its directory: the root itself, links on the path to it, and missing parts of
/// the path.
pub(super) fn anchors(root: &Path) -> Vec<(PathBuf, OsString)> {
    let Ok(root) = std::path::absolute(root) else { return Vec::new() };
    let mut anchors = Vec::new();
    for step in root.ancestors() {
        let turnable = fs::symlink_metadata(step).map_or(true, |metadata| metadata.is_symlink());
        if let (Some(parent), Some(name)) = (step.parent(), step.file_name())
            && (turnable || step == root)
            && let Ok(parent) = fs::canonicalize(parent)
        {
            anchors.push((parent, name.to_owned()));
        }
    }
    anchors
}

impl Found {
    pub(super) fn new(metadata: io::Result<Metadata>) -> Found {
        match metadata {
            Ok(metadata) if metadata.is_file() => Found::File(Stamp::new(&metadata)),
            Ok(_) => Found::Unusable("is not a regular file".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Vanished,
            Err(error) => Found::Unusable(format!("cannot be read: {error}")),
        }
    }

    pub(super) fn new_link(metadata: io::Result<Metadata>, link: &Path) -> Found {
        match Found::new(metadata) {
            Found::Vanished if fs::symlink_metadata(link).is_ok() => {
                Found::Unusable("is a link that leads nowhere".to_owned())
            }
            found => found,
        }
    }
}

impl Unlisted {
    pub(super) fn folder(error: io::Error) -> Unlisted {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unlisted::Vanished,
            _ => Unlisted::Folder(error),
        }
    }

    pub(super) fn link(error: &io::Error, link: &Path) -> Unlisted {
        match fs::symlink_metadata(link) {
            Ok(_) => Unlisted::Link(io::Error::new(error.kind(), error.to_string())),
            Err(_) => Unlisted::Vanished,
        }
    }
}

pub(super) fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

pub(super) fn watch_name(watched_dirs: &mut WatchedDirs, folder: &Path, name: &OsStr) {
    let Ok(metadata) = fs::metadata(folder) else { return };
    let nothing = || WatchedDir { identity: identity(&metadata), interest: Interest::Names(BTreeSet::new()) };
    let dir = watched_dirs.entry(folder.to_owned()).or_insert_with(nothing);
    if let Interest::Names(names) = &mut dir.interest {
        names.insert(name.to_owned());
    }
}

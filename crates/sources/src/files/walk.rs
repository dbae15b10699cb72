//! The walk through the folder and what its links lead to. A link is followed at a bounded cost: one into a large tree, or into a file system of the
//! kernel such as /proc, is left out by itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{self, FsType};

use super::Limits;
use super::name::{CONFIG_MAP_LINK, is_config, is_hidden, is_temporary};
use super::relative::RelativePath;
use super::tree::{Entry, Found, Identity, Interest, Tree, Unlisted, WalkError, WatchedDir, identity, watch_name};

/// File systems of the kernel: huge, and full of files that block or never end.
const KERNEL: [FsType; 12] = [
    statfs::PROC_SUPER_MAGIC,
    statfs::SYSFS_MAGIC,
    statfs::DEBUGFS_MAGIC,
    statfs::TRACEFS_MAGIC,
    statfs::CGROUP_SUPER_MAGIC,
    statfs::CGROUP2_SUPER_MAGIC,
    statfs::SECURITYFS_MAGIC,
    statfs::SELINUX_MAGIC,
    statfs::BPF_FS_MAGIC,
    statfs::DEVPTS_SUPER_MAGIC,
    statfs::NSFS_MAGIC,
    statfs::RDTGROUP_SUPER_MAGIC,
];

pub(super) fn walk(root: &Path, limits: &Limits) -> Result<Tree, WalkError> {
    // The real path, so that a walk stays within one tree even if a link to the root is replaced meanwhile.
    let root = fs::canonicalize(root)?;
    let mut walk = Walk::new(limits);
    walk.seen.insert(identity(&fs::metadata(&root)?));
    let names = listing(&root, limits.entries)?;
    walk.subtree(&RelativePath::top(), &root, names)?;
    let mut spent = 0;
    while let Some((relative, path)) = walk.links.pop_first() {
        walk.linked_folder(relative, &path, &mut spent);
    }
    walk.tree.root = root;
    Ok(walk.tree)
}

/// A folder within the root, and all below it. Links are noticed but not followed. Its entries count against the limits by themselves: a full scan
/// counts all of them together.
pub(super) fn subtree(root: &Path, path: &Path, top: &RelativePath, limits: &Limits) -> Result<Tree, WalkError> {
    let mut walk = Walk::new(limits);
    walk.tree.listed.insert(RelativePath::top(), Some(root.to_owned()));
    let mut real = root.to_owned();
    for folder in top.folders() {
        real.push(folder.split().1);
        walk.tree.listed.insert(folder, Some(real.clone()));
    }
    if walk.is_of_kernel(&fs::metadata(path)?, path) {
        return Err(WalkError::Kernel);
    }
    walk.subtree(top, path, listing(path, limits.entries)?)?;
    Ok(walk.tree)
}

struct Walk<'a> {
    limits: &'a Limits,
    /// Of the folder; while a link is followed, of what it leads to.
    tree: Tree,
    budget: Budget,
    /// Links to folders, followed after all real folders, so that files have their real path where there is one.
    links: BTreeMap<RelativePath, PathBuf>,
    /// No link leads to a folder a second time, which rules out loops and exponential growth.
    seen: HashSet<Identity>,
    /// Whether a device is a file system of the kernel.
    devices: HashMap<u64, bool>,
}

/// What was counted against the limits.
enum Budget {
    Folder {
        entries: usize,
    },
    /// Below one link.
    Link {
        /// Besides configuration files, which have a limit of their own.
        entries: usize,
        limit: usize,
        /// Files outside of this link.
        other_files: usize,
        /// Folders below it, to be forgotten if it is left out.
        folders: HashSet<Identity>,
    },
}

impl<'a> Walk<'a> {
    fn new(limits: &'a Limits) -> Walk<'a> {
        Walk {
            limits,
            tree: Tree::default(),
            budget: Budget::Folder { entries: 0 },
            links: BTreeMap::new(),
            seen: HashSet::new(),
            devices: HashMap::new(),
        }
    }

    /// `spent`: entries below the links before this one, left out or not.
    fn linked_folder(&mut self, relative: RelativePath, path: &Path, spent: &mut usize) {
        let limit = self.limits.link_entries.min(self.limits.all_link_entries.saturating_sub(*spent));
        let before = std::mem::take(&mut self.tree);
        let links = std::mem::take(&mut self.links);
        self.budget = Budget::Link { entries: 0, limit, other_files: before.files.len(), folders: HashSet::new() };
        let outcome = self.folder_by_link(&relative, path);
        let part = std::mem::replace(&mut self.tree, before);
        let new_links = std::mem::replace(&mut self.links, links);
        if let Budget::Link { entries, folders, .. } = &self.budget {
            *spent += entries;
            if outcome.is_err() {
                self.seen.retain(|folder| !folders.contains(folder));
            }
        }
        match outcome {
            Ok(()) => {
                self.tree.extend(part);
                self.links.extend(new_links);
            }
            Err(error) => drop(self.tree.unlisted.insert(relative, Unlisted::Excluded(error))),
        }
    }

    fn folder_by_link(&mut self, relative: &RelativePath, path: &Path) -> Result<(), WalkError> {
        match self.enter(path) {
            Visit::Seen => drop(self.tree.listed.insert(relative.clone(), None)),
            Visit::Kernel => return Err(WalkError::Kernel),
            Visit::New => match listing(path, self.most_names()) {
                Ok(names) => self.subtree(relative, path, names)?,
                Err(error) => drop(self.tree.unlisted.insert(relative.clone(), Unlisted::folder(error))),
            },
        }
        Ok(())
    }

    /// A folder and all real folders below it.
    fn subtree(&mut self, top: &RelativePath, path: &Path, names: Vec<Listed>) -> Result<(), WalkError> {
        let mut folders = Vec::new();
        self.folder(top, path, names, &mut folders)?;
        while let Some((relative, path)) = folders.pop() {
            match (self.enter(&path), &self.budget) {
                (Visit::Seen, Budget::Link { .. }) => drop(self.tree.listed.insert(relative, None)),
                (Visit::Kernel, _) => {
                    drop(self.tree.unlisted.insert(relative, Unlisted::Excluded(WalkError::Kernel)));
                }
                _ => match listing(&path, self.most_names()) {
                    Ok(names) => self.folder(&relative, &path, names, &mut folders)?,
                    Err(error) => drop(self.tree.unlisted.insert(relative, Unlisted::folder(error))),
                },
            }
        }
        Ok(())
    }

    /// Marks a folder as seen.
    fn enter(&mut self, path: &Path) -> Visit {
        // Whoever lists it reports the error.
        let Ok(metadata) = fs::metadata(path) else { return Visit::New };
        if self.is_of_kernel(&metadata, path) {
            return Visit::Kernel;
        }
        if !self.seen.insert(identity(&metadata)) {
            return Visit::Seen;
        }
        if let Budget::Link { folders, .. } = &mut self.budget {
            folders.insert(identity(&metadata));
        }
        Visit::New
    }

    fn is_of_kernel(&mut self, metadata: &Metadata, path: &Path) -> bool {
        let ask = || statfs::statfs(path).is_ok_and(|found| KERNEL.contains(&found.filesystem_type()));
        *self.devices.entry(metadata.dev()).or_insert_with(ask)
    }

    /// One more than may be in a folder.
    fn most_names(&self) -> usize {
        match &self.budget {
            Budget::Folder { .. } => self.limits.entries,
            Budget::Link { limit, .. } => limit + self.limits.files,
        }
    }

    fn folder(
        &mut self,
        relative: &RelativePath,
        path: &Path,
        names: Vec<Listed>,
        folders: &mut Vec<(RelativePath, PathBuf)>,
    ) -> Result<(), WalkError> {
        self.tree.listed.insert(relative.clone(), Some(path.to_owned()));
        self.count(&names)?;
        if let Ok(metadata) = fs::metadata(path) {
            let dir = WatchedDir { identity: identity(&metadata), interest: Interest::All };
            self.tree.watched_dirs.insert(path.to_owned(), dir);
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
        let others = if let Budget::Link { other_files, .. } = self.budget { other_files } else { 0 };
        within(self.tree.files.len() + others, self.limits.files, "files")
    }

    fn count(&mut self, names: &[Listed]) -> Result<(), WalkError> {
        match &mut self.budget {
            Budget::Folder { entries } => {
                *entries += names.len();
                within(*entries, self.limits.entries, "entries")
            }
            Budget::Link { entries, limit, .. } => {
                *entries += names.iter().filter(|(name, kind)| kind.is_dir() || !is_config(name)).count();
                within(*entries, *limit, "entries besides configuration files")
            }
        }
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
            found => self.linked_file(parent, name, path, found),
        }
    }

    fn linked_file(&mut self, parent: &RelativePath, name: &OsStr, path: PathBuf, found: io::Result<Metadata>) {
        if let Err(error) = &found {
            self.tree.unlisted.insert(parent.folder(name), Unlisted::link(error, &path));
        }
        if !is_config(name) {
            return;
        }
        let found = match found {
            Ok(metadata) if self.is_of_kernel(&metadata, &path) => {
                Found::Unusable("is a link into a file system of the kernel, which holds no configuration".to_owned())
            }
            found => {
                if let Ok(real) = fs::canonicalize(&path)
                    && let (Some(folder), Some(name)) = (real.parent(), real.file_name())
                {
                    watch_name(&mut self.tree.watched_dirs, folder, name);
                }
                Found::new_link(found, &path)
            }
        };
        self.tree.files.insert(parent.file(name), Entry { path, found });
    }

    fn record_link_target(&mut self, link: PathBuf) {
        if let Ok(led) = fs::read_link(&link) {
            self.tree.turnable.push((link, led));
        }
    }
}

enum Visit {
    New,
    Seen,
    Kernel,
}

type Listed = (OsString, FileType);

/// The names in a folder, or one more than `most` of them.
fn listing(folder: &Path, most: usize) -> io::Result<Vec<Listed>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)?.take(most.saturating_add(1)) {
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

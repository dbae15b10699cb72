//! A folder tree of YAML and JSON files as a source of objects. `Folder` reads what changed, `watch` does so at every
//! change. Invariant: a file that is broken or unreadable removes nothing; only a deleted one does.

mod catalog;
mod changed_paths;
mod file_state;
mod name;
mod reading;
mod relative;
mod tree;
mod walk;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::diagnostic::Diagnostic;
use config::store::Update;

use self::catalog::{Catalog, Change};
use self::reading::Reading;
use self::relative::RelativePath;
use self::tree::{Entry, Found, Tree, Unlisted, WalkError, WatchedDirs};
pub use self::watch::{Error, watch};

/// A folder with the state of the last scan.
pub struct Folder {
    root: PathBuf,
    limits: Limits,
    catalog: Catalog,
    /// The diagnostics that the store has, by source: a file, a folder, or `.` for the whole.
    reported: BTreeMap<String, Vec<Diagnostic>>,
    watched_dirs: WatchedDirs,
    /// Since the watches were last brought in line with `watched_dirs`.
    watched_dirs_changed: bool,
    /// The real path of the folder. `None`: one change may affect several paths, because there are symbolic links, or parts that cannot be read.
    plain: Option<PathBuf>,
}

pub struct Scan {
    /// By object, then diagnostics by file. Empty: nothing changed.
    pub updates: Vec<Update>,
    /// Configuration files, unreadable ones included.
    pub files: usize,
    /// Number of files that were read because they are new or changed.
    pub read: usize,
    /// The folder itself is readable. If not, everything is kept, and a diagnostic tells why.
    pub readable: bool,
}

/// A folder, file or link that exceeds a limit is rejected as a whole, with a diagnostic.
struct Limits {
    files: usize,
    /// Directory entries of any kind, not below links.
    entries: usize,
    /// Below one link, besides configuration files. More: the link leads to a large part of the file system, and is left out.
    link_entries: usize,
    /// The same of all links together, which bounds the time of a scan.
    all_link_entries: usize,
    bytes_per_file: u64,
}

/// The source of diagnostics about the folder itself; no file has this path.
const TOP: &str = ".";

const STAYS_IN_FORCE: &str = "; its previous objects stay in force";

const LIMITS: Limits = Limits {
    files: 200_000,
    entries: 1_000_000,
    link_entries: 10_000,
    all_link_entries: 50_000,
    bytes_per_file: config::yaml::MAX_BYTES as u64,
};

impl Folder {
    /// Reads nothing yet. Diagnostics name files relative to `dir`.
    pub fn open(dir: &Path) -> Folder {
        Folder {
            root: dir.to_owned(),
            limits: LIMITS,
            catalog: Catalog::default(),
            reported: BTreeMap::new(),
            watched_dirs: WatchedDirs::new(),
            watched_dirs_changed: false,
            plain: None,
        }
    }

    /// Files of up to so many bytes are read.
    #[must_use]
    pub fn with_max_file_size(mut self, bytes: u64) -> Folder {
        self.limits.bytes_per_file = bytes;
        self
    }

    /// The changes since the last scan. Reads only files that are new or changed.
    pub fn scan(&mut self) -> Scan {
        let mut change = Change::default();
        let mut diagnostics = BTreeMap::new();
        let (read, readable) = match self.walk() {
            Ok(walk) => {
                let read = walk.readings.len();
                diagnostics = self.take(walk, &mut change);
                (read, true)
            }
            Err(error) => {
                self.plain = None;
                diagnostics.insert(TOP.to_owned(), vec![self.rejected(&error)]);
                (0, false)
            }
        };
        let anchors = tree::anchors(&self.root);
        self.plain = self.plain.take().filter(|real| !anchors.iter().any(|(parent, _)| parent.starts_with(real)));
        for (parent, name) in &anchors {
            tree::watch_name(&mut self.watched_dirs, parent, name);
        }
        self.watched_dirs_changed = true;
        self.finish_scan(change, diagnostics, read, readable)
    }

    /// The configuration files of the last scan, unreadable ones included.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.catalog.files().keys().map(|path| self.root.join(path.as_path()))
    }

    fn finish_scan(
        &mut self,
        mut change: Change,
        mut diagnostics: BTreeMap<String, Vec<Diagnostic>>,
        read: usize,
        readable: bool,
    ) -> Scan {
        let reported = std::mem::take(&mut change.reported);
        diagnostics.extend(reported.iter().map(|path| (path.shown().to_string(), self.catalog.diagnostics(path))));
        let mut updates = self.catalog.updates(change);
        updates.extend(self.tell(diagnostics));
        Scan { updates, files: self.catalog.files().len(), read, readable }
    }

    fn walk(&self) -> Result<Walked, WalkError> {
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            let walk = self.walk_once()?;
            if walk.tree.is_consistent() {
                return Ok(walk);
            }
        }
        Err(WalkError::Unstable)
    }

    fn walk_once(&self) -> Result<Walked, WalkError> {
        let tree = walk::walk(&self.root, &self.limits)?;
        let files = tree.files.iter();
        let readings = files.filter_map(|(path, entry)| Some((path.clone(), self.reading(path, entry)?))).collect();
        Ok(Walked { tree, readings })
    }

    /// `None`: unchanged.
    fn reading(&self, path: &RelativePath, entry: &Entry) -> Option<Reading> {
        match &entry.found {
            Found::Vanished => None,
            Found::Unusable(why) => Some(Reading::unusable(&path.shown(), why)),
            Found::File(stamp) => {
                let known = self.catalog.files().get(path);
                if known.and_then(|state| state.stamp) == Some(*stamp) {
                    return None;
                }
                let digest = known.and_then(|state| state.digest);
                Reading::new(&entry.path, &path.shown(), self.limits.bytes_per_file, digest)
            }
        }
    }

    /// The diagnostics about folders, with empty lists for those that were resolved.
    fn take(&mut self, walk: Walked, change: &mut Change) -> BTreeMap<String, Vec<Diagnostic>> {
        let Walked { tree, readings } = walk;
        for (path, reading) in readings {
            self.catalog.put(&path, reading, change);
        }
        let known = self.catalog.files().keys().filter(|path| !tree.files.contains_key(path));
        let gone: Vec<RelativePath> = known.filter(|path| tree.lacks(path)).cloned().collect();
        for path in gone {
            self.catalog.remove(&path, change);
        }
        let earlier = self.reported.keys().filter(|source| *source == TOP || source.ends_with('/'));
        let mut diagnostics: BTreeMap<String, Vec<Diagnostic>> =
            earlier.map(|source| (source.clone(), Vec::new())).collect();
        for (folder, unlisted) in &tree.unlisted {
            diagnostics.insert(folder.shown().to_string(), self.unlisted_note(folder, unlisted).into_iter().collect());
        }
        self.watched_dirs = tree.watched_dirs;
        self.plain = Some(tree.root).filter(|_| !tree.linked && tree.unlisted.is_empty());
        diagnostics
    }

    fn unlisted_note(&self, folder: &RelativePath, unlisted: &Unlisted) -> Option<Diagnostic> {
        let holds = self.catalog.below(folder).next().is_some();
        let problem = match unlisted {
            Unlisted::Folder(error) => format!("cannot be read: {error}"),
            Unlisted::Link(error) if holds => format!("cannot be read: {error}"),
            Unlisted::Excluded(error) => format!("{error}; it is left out"),
            Unlisted::Link(_) | Unlisted::Vanished => return None,
        };
        let suffix = if holds { STAYS_IN_FORCE } else { "" };
        Some(Diagnostic::error(format!("folder {} {problem}{suffix}", folder.shown())))
    }

    fn rejected(&self, error: &WalkError) -> Diagnostic {
        let suffix = if self.catalog.files().is_empty() { "" } else { STAYS_IN_FORCE };
        Diagnostic::error(format!("folder {} {error}{suffix}", self.root.display()))
    }

    fn tell(&mut self, diagnostics: BTreeMap<String, Vec<Diagnostic>>) -> Vec<Update> {
        let mut updates = Vec::new();
        for (source, diagnostics) in diagnostics {
            if self.reported.get(&source).map_or(&[][..], Vec::as_slice) == diagnostics {
                continue;
            }
            if diagnostics.is_empty() {
                self.reported.remove(&source);
            } else {
                self.reported.insert(source.clone(), diagnostics.clone());
            }
            updates.push(Update::Diagnostics { source, diagnostics });
        }
        updates
    }
}

/// The objects of one text as if it were the only file of a folder. `name` is for diagnostics. Never fails: a text that cannot be read is a
/// diagnostic.
pub fn read_text(name: &str, text: Vec<u8>, max_bytes: u64) -> Scan {
    let (mut catalog, mut change) = (Catalog::default(), Change::default());
    let path = RelativePath::of_file(Path::new(name));
    catalog.put(&path, Reading::of_text(&path.shown(), text, max_bytes), &mut change);
    let diagnostics = catalog.diagnostics(&path);
    let mut updates = catalog.updates(change);
    updates.push(Update::Diagnostics { source: name.to_owned(), diagnostics });
    Scan { updates, files: 1, read: 1, readable: true }
}

struct Walked {
    tree: Tree,
    readings: BTreeMap<RelativePath, Reading>,
}

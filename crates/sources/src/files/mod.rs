//! A folder tree of YAML and JSON files as a source of objects. `Folder` reads what changed, `watch` does so at every
//! change. Law: what is broken or cannot be read removes nothing; only what is gone does.

mod catalog;
mod held;
mod name;
mod reading;
mod relative;
mod tree;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use config::note::Note;
use config::store::Update;

use self::catalog::{Catalog, Change};
use self::reading::Reading;
use self::relative::Relative;
use self::tree::{Entry, Found, Places, Refusal, Tree, Unlisted};
pub use self::watch::{Error, watch};

/// A folder and what it gave so far.
pub struct Folder {
    root: PathBuf,
    limits: Limits,
    catalog: Catalog,
    /// The notes that the store has, by source: a file, a folder, or `.` for the whole.
    told: BTreeMap<String, Vec<Note>>,
    places: Places,
    /// The real path of the folder. `None`: it could not be read, or links make files of others change with one.
    plain: Option<PathBuf>,
}

pub struct Scan {
    /// By object, then notes by file. Empty: nothing changed.
    pub updates: Vec<Update>,
    /// Files of configuration, also those that cannot be read.
    pub files: usize,
    /// How many of them were read, because they are new or changed.
    pub read: usize,
    /// The folder itself could be read. If not, all is kept as it was, and a note says why.
    pub readable: bool,
}

/// Beyond these a folder or a file is refused as a whole, with a note.
struct Limits {
    files: usize,
    /// Names of any sort; met when a link leads to a large part of the file system.
    entries: usize,
    bytes_per_file: u64,
}

/// The source of notes about the folder itself; no file has this path.
const TOP: &str = ".";

const KEPT: &str = "; what it gave before stays in force";

const LIMITS: Limits = Limits { files: 200_000, entries: 1_000_000, bytes_per_file: config::yaml::MAX_BYTES as u64 };

impl Folder {
    /// Reads nothing yet. Notes name files relative to `dir`.
    pub fn open(dir: &Path) -> Folder {
        Folder {
            root: dir.to_owned(),
            limits: LIMITS,
            catalog: Catalog::default(),
            told: BTreeMap::new(),
            places: Places::new(),
            plain: None,
        }
    }

    /// What changed since the last scan. Reads only files that are new or changed.
    pub fn scan(&mut self) -> Scan {
        let mut change = Change::default();
        let mut notes = BTreeMap::new();
        let (read, readable) = match self.look() {
            Ok(look) => {
                let read = look.readings.len();
                notes = self.take(look, &mut change);
                (read, true)
            }
            Err(refusal) => {
                self.plain = None;
                notes.insert(TOP.to_owned(), vec![self.refused(&refusal)]);
                (0, false)
            }
        };
        tree::add_anchors(&self.root, &mut self.places);
        self.scanned(change, notes, read, readable)
    }

    /// What changed in these files alone, at the cost of these files alone. `None`: that takes a whole scan, because one of
    /// them is new or gone, or there are links.
    fn scan_files(&mut self, paths: &BTreeSet<PathBuf>) -> Option<Scan> {
        let root = self.plain.as_ref()?;
        let mut readings = Vec::new();
        for path in paths {
            let relative = Relative::of_file(path.strip_prefix(root).ok()?);
            self.catalog.files().get(&relative)?;
            let reading = self.reading(&relative, &Entry::plain(path)?);
            readings.extend(reading.map(|reading| (relative, reading)));
        }
        let (mut change, read) = (Change::default(), readings.len());
        for (path, reading) in readings {
            self.catalog.put(&path, reading, &mut change);
        }
        Some(self.scanned(change, BTreeMap::new(), read, true))
    }

    fn scanned(
        &mut self,
        mut change: Change,
        mut notes: BTreeMap<String, Vec<Note>>,
        read: usize,
        readable: bool,
    ) -> Scan {
        let noted = std::mem::take(&mut change.noted);
        notes.extend(noted.iter().map(|path| (path.shown().to_string(), self.catalog.notes(path))));
        let mut updates = self.catalog.updates(change);
        updates.extend(self.tell(notes));
        Scan { updates, files: self.catalog.files().len(), read, readable }
    }

    fn look(&self) -> Result<Look, Refusal> {
        const TRIES: usize = 5;
        for _ in 0..TRIES {
            let look = self.look_once()?;
            if look.tree.is_of_one_piece() {
                return Ok(look);
            }
        }
        Err(Refusal::Restless)
    }

    fn look_once(&self) -> Result<Look, Refusal> {
        let tree = Tree::new(&self.root, &self.limits)?;
        let files = tree.files.iter();
        let readings = files.filter_map(|(path, entry)| Some((path.clone(), self.reading(path, entry)?))).collect();
        Ok(Look { tree, readings })
    }

    /// `None`: nothing new.
    fn reading(&self, path: &Relative, entry: &Entry) -> Option<Reading> {
        match &entry.found {
            Found::Vanished => None,
            Found::Unusable(why) => Some(Reading::unusable(&path.shown(), why)),
            Found::File(stamp) => {
                let known = self.catalog.files().get(path);
                if known.and_then(|held| held.stamp) == Some(*stamp) {
                    return None;
                }
                let digest = known.and_then(|held| held.digest);
                Reading::new(&entry.path, &path.shown(), self.limits.bytes_per_file, digest)
            }
        }
    }

    /// The notes about folders, also the empty lists that take back earlier ones.
    fn take(&mut self, look: Look, change: &mut Change) -> BTreeMap<String, Vec<Note>> {
        let Look { tree, readings } = look;
        for (path, reading) in readings {
            self.catalog.put(&path, reading, change);
        }
        let known = self.catalog.files().keys().filter(|path| !tree.files.contains_key(path));
        let gone: Vec<Relative> = known.filter(|path| tree.lacks(path)).cloned().collect();
        for path in gone {
            self.catalog.remove(&path, change);
        }
        let earlier = self.told.keys().filter(|source| *source == TOP || source.ends_with('/'));
        let mut notes: BTreeMap<String, Vec<Note>> = earlier.map(|source| (source.clone(), Vec::new())).collect();
        for (folder, unlisted) in &tree.unlisted {
            notes.insert(folder.shown().to_string(), self.unlisted_note(folder, unlisted).into_iter().collect());
        }
        self.places = tree.places;
        self.plain = Some(tree.root).filter(|_| !tree.linked);
        notes
    }

    fn unlisted_note(&self, folder: &Relative, unlisted: &Unlisted) -> Option<Note> {
        let holds = self.catalog.holds_below(folder);
        let error = match unlisted {
            Unlisted::Folder(error) => error,
            Unlisted::Link(error) if holds => error,
            Unlisted::Link(_) | Unlisted::Vanished => return None,
        };
        let kept = if holds { KEPT } else { "" };
        Some(Note::error(format!("folder {} cannot be read: {error}{kept}", folder.shown())))
    }

    fn refused(&self, refusal: &Refusal) -> Note {
        let kept = if self.catalog.files().is_empty() { "" } else { KEPT };
        Note::error(format!("folder {} {refusal}{kept}", self.root.display()))
    }

    fn tell(&mut self, notes: BTreeMap<String, Vec<Note>>) -> Vec<Update> {
        let mut updates = Vec::new();
        for (source, notes) in notes {
            if self.told.get(&source).map_or(&[][..], Vec::as_slice) == notes {
                continue;
            }
            if notes.is_empty() {
                self.told.remove(&source);
            } else {
                self.told.insert(source.clone(), notes.clone());
            }
            updates.push(Update::Notes { source, notes });
        }
        updates
    }
}

struct Look {
    tree: Tree,
    readings: BTreeMap<Relative, Reading>,
}

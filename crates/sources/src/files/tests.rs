//! Folders on a real disk, scanned: one file per sort of trouble. Watching has its own tests.

mod broken;
mod changes;
mod duplicates;
mod limits;
mod links;
mod random;
mod unreadable;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use config::note::{Note, ObjectId};
use config::object::AnyObject;
use config::store::Update;
use tempfile::TempDir;

pub(super) use self::links::mount;
use super::{Folder, Scan};

/// A folder, and what a store that got all updates would hold.
pub(super) struct Bed {
    temporary: TempDir,
    pub(super) folder: Folder,
    pub(super) held: Held,
}

#[derive(Default)]
pub(super) struct Held {
    pub(super) objects: BTreeMap<ObjectId, AnyObject>,
    pub(super) notes: BTreeMap<String, Vec<Note>>,
}

impl Bed {
    pub(super) fn new(files: &[(&str, &str)]) -> Bed {
        let temporary = TempDir::new().expect("a temporary folder");
        let root = temporary.path().join("conf");
        fs::create_dir(&root).expect("the root");
        let bed = Bed { folder: Folder::open(&root), held: Held::default(), temporary };
        for (path, text) in files {
            bed.write(path, text);
        }
        bed
    }

    /// A bed that has been scanned.
    pub(super) fn loaded(files: &[(&str, &str)]) -> Bed {
        let mut bed = Bed::new(files);
        bed.scan();
        bed
    }

    pub(super) fn root(&self) -> PathBuf {
        self.temporary.path().join("conf")
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Outside of the folder.
    pub(super) fn aside(&self, path: &str) -> PathBuf {
        self.temporary.path().join(path)
    }

    pub(super) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        write(&self.path(path), text);
    }

    pub(super) fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("a file to remove");
    }

    pub(super) fn link(&self, to: impl AsRef<Path>, path: &str) {
        symlink(to, self.path(path)).expect("a link");
    }

    /// The updates in short: `put Service shop/a`, `delete Service shop/a`, `notes a.yaml`.
    pub(super) fn scan(&mut self) -> Vec<String> {
        let Scan { updates, .. } = self.folder.scan();
        let told = updates.iter().map(told).collect();
        self.held.apply(updates);
        told
    }

    /// `None`: it takes a whole scan.
    pub(super) fn scan_files(&mut self, paths: &[&str]) -> Option<Vec<String>> {
        let root = fs::canonicalize(self.root()).expect("the root");
        let Scan { updates, read, .. } = self.folder.scan_files(&paths.iter().map(|path| root.join(path)).collect())?;
        assert!(read <= paths.len(), "{read} files were read");
        let told = updates.iter().map(told).collect();
        self.held.apply(updates);
        Some(told)
    }

    pub(super) fn objects(&self) -> Vec<String> {
        self.held.names()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.held.notes()
    }

    /// The only note there is.
    pub(super) fn note(&self) -> String {
        let notes = self.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes[0].clone()
    }

    /// The state equals that of a folder that is read for the first time.
    pub(super) fn check_fresh(&self) {
        let mut fresh = Held::default();
        fresh.apply(Folder::open(&self.root()).scan().updates);
        assert_eq!(self.held.places(), fresh.places());
        assert!(self.held.objects == fresh.objects, "the same names hold other objects");
        assert_eq!(self.notes(), fresh.notes());
    }
}

impl Held {
    pub(super) fn apply(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Put(object) => {
                    self.objects.insert(object.id(), object);
                }
                Update::Delete(id) => {
                    assert!(self.objects.remove(&id).is_some(), "{id} is deleted but was never there");
                }
                Update::Notes { source, notes } if notes.is_empty() => {
                    assert!(self.notes.remove(&source).is_some(), "{source} had no notes to take back");
                }
                Update::Notes { source, notes } => {
                    self.notes.insert(source, notes);
                }
                Update::MeshConfig(text) => panic!("a folder gives no {text:?}"),
                Update::Keys { source, .. } => panic!("a folder holds no keys of {source}"),
                Update::Standing { id, .. } => panic!("a folder says nothing of {id}"),
            }
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.objects.keys().map(ToString::to_string).collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.values().flatten().map(ToString::to_string).collect()
    }

    /// Objects with the place they come from.
    fn places(&self) -> Vec<String> {
        let place = |object: &AnyObject| object.meta().at.as_ref().map(ToString::to_string).unwrap_or_default();
        self.objects.iter().map(|(id, object)| format!("{id} at {}", place(object))).collect()
    }

    pub(super) fn port(&self, name: &str) -> Option<u16> {
        self.objects.values().find_map(|object| match object {
            AnyObject::Service(service) if *service.meta.name == *name => {
                service.spec.ports.first().map(|port| port.port)
            }
            _ => None,
        })
    }
}

/// On tmpfs if there is one: there, a name that is renamed over moves to another place of a listing in progress.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a temporary folder")
}

pub(super) fn told(update: &Update) -> String {
    match update {
        Update::Put(object) => format!("put {}", object.id()),
        Update::Delete(id) => format!("delete {id}"),
        Update::Notes { source, .. } => format!("notes {source}"),
        Update::MeshConfig(text) => format!("mesh config {}", text.file),
        Update::Keys { source, .. } => format!("keys {source}"),
        Update::Standing { id, .. } => format!("standing {id}"),
    }
}

/// Each write has an old modification time of its own, so that the next scan trusts the stamp.
pub(super) fn write(path: &Path, text: impl AsRef<[u8]>) {
    static CLOCK: AtomicU64 = AtomicU64::new(1_000_000_000);
    fs::create_dir_all(path.parent().expect("a parent")).expect("the folders above");
    fs::write(path, text).expect("a file to write");
    let seconds = Duration::from_secs(CLOCK.fetch_add(1, Ordering::Relaxed));
    let file = File::options().append(true).open(path).expect("the file just written");
    file.set_modified(SystemTime::UNIX_EPOCH + seconds).expect("a time to set");
}

pub(super) fn service(name: &str, port: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  namespace: shop\nspec:\n  ports:\n  - port: {port}\n"
    )
}

pub(super) fn services(names: &[&str], port: i32) -> String {
    names.iter().map(|name| service(name, port)).collect::<Vec<_>>().join("---\n")
}

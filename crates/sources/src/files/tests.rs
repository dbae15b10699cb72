//! Scans of folders on a real disk, one file per kind of problem. Watching has its own tests.

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

use config::diagnostic::{Diagnostic, ObjectId};
use config::object::AnyObject;
use config::store::Update;
use tempfile::TempDir;

pub(super) use self::links::mount;
use super::{Folder, Scan};

/// A folder, and the state of a store that got all updates.
pub(super) struct Fixture {
    temporary: TempDir,
    pub(super) folder: Folder,
    pub(super) stored: StoreState,
}

#[derive(Default)]
pub(super) struct StoreState {
    pub(super) objects: BTreeMap<ObjectId, AnyObject>,
    pub(super) diagnostics: BTreeMap<String, Vec<Diagnostic>>,
}

impl Fixture {
    pub(super) fn new(files: &[(&str, &str)]) -> Fixture {
        let temporary = TempDir::new().expect("a temporary folder");
        let root = temporary.path().join("conf");
        fs::create_dir(&root).expect("the root");
        let fixture = Fixture { folder: Folder::open(&root), stored: StoreState::default(), temporary };
        for (path, text) in files {
            fixture.write(path, text);
        }
        fixture
    }

    /// A fixture after its first scan.
    pub(super) fn loaded(files: &[(&str, &str)]) -> Fixture {
        let mut fixture = Fixture::new(files);
        fixture.scan();
        fixture
    }

    pub(super) fn root(&self) -> PathBuf {
        self.temporary.path().join("conf")
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// A path outside of the folder.
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

    /// The updates in short: `put Service shop/a`, `delete Service shop/a`, `diagnostics a.yaml`.
    pub(super) fn scan(&mut self) -> Vec<String> {
        let Scan { updates, .. } = self.folder.scan();
        let described = updates.iter().map(describe_update).collect();
        self.stored.apply(updates);
        described
    }

    /// As after events about these paths. `None`: a full scan is needed.
    pub(super) fn scan_paths(&mut self, paths: &[&str]) -> Option<Vec<String>> {
        let root = fs::canonicalize(self.root()).expect("the root");
        let Scan { updates, .. } = self.folder.scan_paths(&paths.iter().map(|path| root.join(path)).collect())?;
        let described = updates.iter().map(describe_update).collect();
        self.stored.apply(updates);
        Some(described)
    }

    pub(super) fn objects(&self) -> Vec<String> {
        self.stored.names()
    }

    pub(super) fn diagnostics(&self) -> Vec<String> {
        self.stored.diagnostics()
    }

    /// The only diagnostic.
    pub(super) fn diagnostic(&self) -> String {
        let diagnostics = self.diagnostics();
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
        diagnostics[0].clone()
    }

    /// The state equals that of a first scan.
    pub(super) fn check_fresh(&self) {
        let mut fresh = StoreState::default();
        let mut folder = Folder::open(&self.root());
        fresh.apply(folder.scan().updates);
        assert_eq!(self.folder.watched_dirs, folder.watched_dirs, "the directories to watch");
        assert_eq!(self.stored.locations(), fresh.locations());
        assert!(self.stored.objects == fresh.objects, "the same names hold other objects");
        assert_eq!(self.diagnostics(), fresh.diagnostics());
    }
}

impl StoreState {
    pub(super) fn apply(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Put(object) => {
                    self.objects.insert(object.id(), object);
                }
                Update::Delete(id) => {
                    assert!(self.objects.remove(&id).is_some(), "{id} is deleted but was never there");
                }
                Update::Diagnostics { source, diagnostics } if diagnostics.is_empty() => {
                    assert!(self.diagnostics.remove(&source).is_some(), "{source} had no notes to take back");
                }
                Update::Diagnostics { source, diagnostics } => {
                    self.diagnostics.insert(source, diagnostics);
                }
                Update::MeshConfig(text) => panic!("a folder gives no {text:?}"),
                Update::Keys { source, .. } => panic!("a folder holds no keys of {source}"),
                Update::ObjectStatus { id, .. } => panic!("a folder says nothing of {id}"),
            }
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.objects.keys().map(ToString::to_string).collect()
    }

    pub(super) fn diagnostics(&self) -> Vec<String> {
        self.diagnostics.values().flatten().map(ToString::to_string).collect()
    }

    /// Objects with their locations.
    fn locations(&self) -> Vec<String> {
        let location = |object: &AnyObject| object.meta().at.as_ref().map(ToString::to_string).unwrap_or_default();
        self.objects.iter().map(|(id, object)| format!("{id} at {}", location(object))).collect()
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

/// On tmpfs if there is one: there, a renamed file changes its position in a directory listing in progress.
fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a temporary folder")
}

pub(super) fn describe_update(update: &Update) -> String {
    match update {
        Update::Put(object) => format!("put {}", object.id()),
        Update::Delete(id) => format!("delete {id}"),
        Update::Diagnostics { source, .. } => format!("diagnostics {source}"),
        Update::MeshConfig(text) => format!("mesh config {}", text.file),
        Update::Keys { source, .. } => format!("keys {source}"),
        Update::ObjectStatus { id, .. } => format!("status {id}"),
    }
}

/// Each write gets an old modification time of its own, so that the next scan trusts the stamp.
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

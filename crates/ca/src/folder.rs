//! The state folder: files are written atomically, readable by the owner only, and synced before anything depends on them. The callers
//! know the files.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Suffix of incomplete files.
const TEMPORARY: &str = ".tmp";

#[derive(Clone, Copy)]
pub(crate) struct Folder<'a>(pub(crate) &'a Path);

#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    pub error: io::Error,
}

impl Folder<'_> {
    /// Locked while files are read or changed together, across processes. `None`: the folder does not exist.
    pub(crate) fn lock(&self) -> Result<Option<File>, FileError> {
        match File::open(self.0) {
            Ok(folder) => {
                // Some network file systems do not support locks of folders: there the folder must have one user.
                let _ = folder.lock();
                Ok(Some(folder))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError { path: self.0.to_owned(), error }),
        }
    }

    /// Removes files of interrupted writers. Under the lock, so that no other writer's file is affected.
    pub(crate) fn remove_temporary_files(&self) -> Result<(), FileError> {
        let failed = |error| FileError { path: self.0.to_owned(), error };
        for entry in fs::read_dir(self.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                let path = entry.path();
                fs::remove_file(&path).map_err(|error| FileError { path, error })?;
            }
        }
        Ok(())
    }

    pub(crate) fn create(&self) -> Result<(), FileError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(self.0);
        made.map_err(|error| FileError { path: self.0.to_owned(), error })
    }

    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<String>>, FileError> {
        let path = self.0.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError { path, error }),
        }
    }

    /// All files are synced before the first is renamed, which minimizes the window of a crash between them.
    pub(crate) fn write(&self, files: &[(&str, &str)]) -> Result<(), FileError> {
        self.create()?;
        let whole = files.iter().map(|(name, text)| Ok((*name, self.temporary(text)?)));
        for (name, file) in whole.collect::<Result<Vec<_>, FileError>>()? {
            let path = self.0.join(name);
            file.persist(&path).map_err(|e| FileError { path, error: e.error })?;
        }
        self.sync()
    }

    /// Never overwrites an existing file.
    pub(crate) fn write_new(&self, name: &str, text: &str) -> Result<(), FileError> {
        self.create()?;
        let path = self.0.join(name);
        match self.temporary(text)?.persist_noclobber(&path) {
            Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(FileError { path, error: e.error }),
            _ => self.sync(),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let path = self.0.join(from);
        fs::rename(&path, self.0.join(to)).map_err(|error| FileError { path, error })?;
        self.sync()
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), FileError> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Ok(()) => self.sync(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(FileError { path, error }),
        }
    }

    /// Synced, readable by the owner only.
    fn temporary(&self, text: &str) -> Result<NamedTempFile, FileError> {
        let write = || {
            let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(self.0)?;
            file.write_all(text.as_bytes())?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        write().map_err(|error| FileError { path: self.0.to_owned(), error })
    }

    /// A rename is durable once its folder is synced.
    fn sync(&self) -> Result<(), FileError> {
        let synced = File::open(self.0).and_then(|folder| folder.sync_all());
        synced.map_err(|error| FileError { path: self.0.to_owned(), error })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_its_owners_and_nothing_is_left_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder(place.path());
        folder.write(&[("a", "one"), ("b", "two")]).unwrap();
        folder.write_new("a", "three").unwrap();
        let mode = fs::metadata(place.path().join("a")).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, fs::read_dir(place.path()).unwrap().count()), (0o600, 2));
        assert_eq!(folder.read("a").unwrap().unwrap().as_str(), "one", "never over a file that is already there");
        assert!(folder.read("c").unwrap().is_none());
    }

    #[test]
    fn a_file_that_another_writer_makes_is_not_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_owned();
        let lock = Folder(&path).lock().unwrap();
        let written = std::fs::write(path.join(".tmpabcdef"), "half");
        // Whether it waits or not, the file is there until the lock is released: that is written down before it is.
        let (locked, order) = std::sync::mpsc::channel();
        let cleaner = std::thread::spawn({
            let (path, locked) = (path.clone(), locked.clone());
            move || {
                let _lock = Folder(&path).lock().unwrap();
                locked.send("cleaner").unwrap();
                Folder(&path).remove_temporary_files().unwrap();
            }
        });
        assert!(written.is_ok() && path.join(".tmpabcdef").exists(), "the writer holds the lock");
        locked.send("writer").unwrap();
        drop(lock);
        cleaner.join().unwrap();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["writer", "cleaner"]);
        assert!(!path.join(".tmpabcdef").exists());
    }
}

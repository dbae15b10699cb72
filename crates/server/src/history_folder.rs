//! The folder of the history: journal files, the newest of which is being written. Each is complete by itself, so that old ones can be deleted.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result};
use history::{JournalSink, ResourceHistory, SavedReader};
use tracing::warn;

use crate::settings::HistorySettings;

/// So many files at most are in the folder at its limit.
const FILES: u64 = 8;

pub(crate) struct HistoryFolder {
    dir: PathBuf,
    max_bytes: u64,
    max_age: std::time::Duration,
    /// The file that is being written.
    open: Arc<Mutex<OpenFile>>,
}

#[derive(Default)]
struct OpenFile {
    /// `None`: nothing could be written.
    writer: Option<BufWriter<File>>,
    path: PathBuf,
    bytes: u64,
}

impl HistoryFolder {
    /// `None`: the history is in memory only.
    pub(crate) fn open(settings: &HistorySettings) -> Result<Option<HistoryFolder>> {
        let Some(folder) = &settings.folder else { return Ok(None) };
        let dir = folder.dir.clone();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.with_context(|| format!("MELTEMI_HISTORY_DIR: cannot make the folder {}", dir.display()))?;
        let max_age = settings.limits.age;
        Ok(Some(HistoryFolder { dir, max_bytes: folder.bytes, max_age, open: Arc::default() }))
    }

    /// What the processes before this one recorded. A file that cannot be read is left out.
    pub(crate) fn load(&self, history: &mut ResourceHistory) {
        self.delete_old();
        for path in self.files() {
            let mut bytes = Vec::new();
            match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
                Ok(_) => history.load(&bytes, reader(path)),
                Err(error) => warn!(path = %path.display(), %error, "a file of the history cannot be read"),
            }
        }
    }

    /// Begins a new file.
    pub(crate) fn begin_file(&self, history: &mut ResourceHistory) {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        let path = self.dir.join(format!("journal-{since:020}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match file {
            Ok(file) => {
                *self.current() = OpenFile { writer: Some(BufWriter::new(file)), path, bytes: 0 };
                history.write_to(Some(self.sink()), now);
                self.flush();
                self.delete_old();
            }
            Err(error) => {
                warn!(path = %path.display(), %error, "the history cannot be written");
                *self.current() = OpenFile::default();
                history.write_to(None, now);
            }
        }
    }

    fn sink(&self) -> JournalSink {
        let open = self.open.clone();
        Box::new(move |bytes| open.lock().unwrap_or_else(PoisonError::into_inner).write(bytes))
    }

    /// Hands what was recorded to the system.
    pub(crate) fn flush(&self) {
        let mut open = self.current();
        if let Some(Err(error)) = open.writer.as_mut().map(BufWriter::flush) {
            open.fail(&error);
        }
    }

    /// Whether it is time for another file.
    pub(crate) fn is_file_full(&self) -> bool {
        let open = self.current();
        open.writer.is_none() || open.bytes > self.max_bytes / FILES
    }

    /// The oldest first.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_journal =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-"));
        let mut files: Vec<PathBuf> = entries.filter(is_journal).collect();
        files.sort();
        files
    }

    fn delete_old(&self) {
        let current = self.current().path.clone();
        let mut left = self.max_bytes;
        for path in self.files().into_iter().rev() {
            let Ok(meta) = fs::metadata(&path) else { continue };
            let is_old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > self.max_age));
            let fits = left.checked_sub(meta.len());
            left = fits.unwrap_or(0);
            if path != current && (is_old || fits.is_none()) {
                delete(&path);
            }
        }
    }

    // An entry that a panic cut short is not read.
    fn current(&self) -> std::sync::MutexGuard<'_, OpenFile> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFile {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(Err(error)) = self.writer.as_mut().map(|writer| writer.write_all(bytes)) {
            self.fail(&error);
        }
    }

    /// Another file is begun later.
    fn fail(&mut self, error: &std::io::Error) {
        warn!(path = %self.path.display(), %error, "the history cannot be written");
        self.writer = None;
    }
}

fn delete(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        warn!(path = %path.display(), %error, "an old file of the history cannot be deleted");
    }
}

fn reader(path: PathBuf) -> SavedReader {
    Arc::new(move |place| {
        let mut bytes = vec![0; usize::try_from(place.end - place.start).ok()?];
        File::open(&path).ok()?.read_exact_at(&mut bytes, place.start).ok()?;
        Some(bytes)
    })
}

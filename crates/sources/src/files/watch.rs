//! Watching a folder: file system events, a debounce, one scan. Falls back to polling every two seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::store::Update;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::name::is_temporary;
use super::tree::{Identity, Interest, WatchedDirs};
use super::{Folder, Scan};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the scan of the folder failed")]
    Scan(#[source] tokio::task::JoinError),
}

/// Sends changes until the receiver is dropped. The first batch holds the changes since the last scan. An empty batch means
/// that the folder is being written and more is to come. `observe_scan` gets the duration of each scan.
pub async fn watch(
    folder: Folder,
    out: mpsc::Sender<Vec<Update>>,
    observe_scan: impl Fn(Duration) + Send,
) -> Result<(), Error> {
    watch_at(&INTERVALS, Watches::open, folder, out, observe_scan).await
}

pub(super) struct Intervals {
    /// Debounce: a scan starts after this long without events, because an editor's save is several steps.
    pub(super) quiet: Duration,
    /// A scan starts after this long even without a quiet period.
    pub(super) max_delay: Duration,
    /// The polling interval while watching does not work or the folder is unreadable.
    pub(super) poll: Duration,
    /// The interval of full scans in case an event was lost, as on network file systems.
    pub(super) full_scan: Duration,
}

const INTERVALS: Intervals = Intervals {
    quiet: Duration::from_millis(30),
    max_delay: Duration::from_millis(250),
    poll: Duration::from_secs(2),
    full_scan: Duration::from_secs(30),
};

pub(super) async fn watch_at(
    pace: &Intervals,
    watches: fn(mpsc::Sender<()>) -> Watches,
    mut folder: Folder,
    out: mpsc::Sender<Vec<Update>>,
    observe_scan: impl Fn(Duration) + Send,
) -> Result<(), Error> {
    // Capacity one: a tick carries no content.
    let (tick, mut ticks) = mpsc::channel(1);
    let mut watches = watches(tick.clone());
    // In case an event was lost.
    let mut next_full_scan = Instant::now();
    loop {
        let full_scan_due = Instant::now() >= next_full_scan;
        let pass = tokio::task::spawn_blocking(move || ScanPass::new(folder, watches, full_scan_due));
        let done = pass.await.map_err(Error::Scan)?;
        (folder, watches) = (done.folder, done.watches);
        if done.is_full {
            next_full_scan = Instant::now() + pace.full_scan;
        }
        observe_scan(done.took);
        let Scan { updates, readable, .. } = done.scan;
        if !updates.is_empty() && out.send(updates).await.is_err() {
            return Ok(());
        }
        // Events in a new directory before its watch existed would be missed.
        if done.has_new_dirs {
            continue;
        }
        let wait = if readable && watches.works() {
            next_full_scan.saturating_duration_since(Instant::now())
        } else {
            pace.poll
        };
        tokio::select! {
            () = out.closed() => return Ok(()),
            ticked = timeout(wait, ticks.recv()) => if ticked.is_ok() { debounce(pace, &mut ticks, &out).await },
        }
    }
}

async fn debounce(pace: &Intervals, ticks: &mut mpsc::Receiver<()>, out: &mpsc::Sender<Vec<Update>>) {
    let end = Instant::now() + pace.max_delay;
    while Instant::now() < end {
        // Full: the receiver is busy.
        let _ = out.try_send(Vec::new());
        let quiet = (Instant::now() + pace.quiet).min(end);
        if timeout_at(quiet, ticks.recv()).await.is_err() {
            return;
        }
    }
}

struct ScanPass {
    folder: Folder,
    watches: Watches,
    scan: Scan,
    took: Duration,
    has_new_dirs: bool,
    /// A full scan, not one of changed paths.
    is_full: bool,
}

impl ScanPass {
    fn new(mut folder: Folder, mut watches: Watches, full_scan_due: bool) -> ScanPass {
        let began = std::time::Instant::now();
        let changed_paths = locked(&watches.state).take_changed_paths();
        let part = match changed_paths {
            ChangedPaths::Paths(paths) if !full_scan_due => folder.scan_paths(&paths),
            _ => None,
        };
        let is_full = part.is_none();
        let scan = part.unwrap_or_else(|| folder.scan());
        let took = began.elapsed();
        if !scan.updates.is_empty() {
            let count = |is: fn(&Update) -> bool| scan.updates.iter().filter(|update| is(update)).count();
            info!(
                files = scan.files,
                read = scan.read,
                changed = count(|update| matches!(update, Update::Put(_))),
                deleted = count(|update| matches!(update, Update::Delete(_))),
                reported = count(|update| matches!(update, Update::Diagnostics { .. })),
                milliseconds = took.as_millis(),
                "folder changed"
            );
        }
        let changed = std::mem::take(&mut folder.watched_dirs_changed);
        let has_new_dirs = watches.update(&folder.watched_dirs, changed);
        ScanPass { folder, watches, scan, took, has_new_dirs, is_full }
    }
}

/// File system events for the directories of a folder.
pub(super) struct Watches {
    /// `None`: events are not available.
    watcher: Option<RecommendedWatcher>,
    state: Arc<Mutex<WatchState>>,
    /// Some directory is not watched.
    incomplete: bool,
}

/// State shared with the event thread.
#[derive(Default)]
struct WatchState {
    wanted: WatchedDirs,
    /// Directories with a watch. A renamed or deleted directory loses its watch, and those below it theirs.
    live: BTreeMap<PathBuf, Identity>,
    /// A watch was lost that may still be wanted.
    lost: bool,
    /// Since the last scan.
    changed_paths: ChangedPaths,
    /// The last event was the first half of a rename: of the second, the new path, nothing is known yet.
    renaming: bool,
}

/// The paths of events.
#[derive(Debug, Default, PartialEq, Eq)]
enum ChangedPaths {
    #[default]
    Nothing,
    Paths(BTreeSet<PathBuf>),
    /// Unknown, or too many.
    Anything,
}

impl ChangedPaths {
    fn add(&mut self, path: &Path) {
        /// A bound of memory: with more, a full scan costs about as much.
        const MOST: usize = 1000;
        match self {
            ChangedPaths::Nothing => *self = ChangedPaths::Paths(BTreeSet::from([path.to_owned()])),
            ChangedPaths::Paths(paths) if paths.len() < MOST => drop(paths.insert(path.to_owned())),
            ChangedPaths::Paths(_) | ChangedPaths::Anything => *self = ChangedPaths::Anything,
        }
    }
}

impl Watches {
    pub(super) fn open(tick: mpsc::Sender<()>) -> Watches {
        let state = Arc::new(Mutex::new(WatchState::default()));
        let seen = state.clone();
        let watcher = notify::recommended_watcher(move |event| {
            if locked(&seen).concerns(&event) {
                // Full: a scan is due anyway.
                let _ = tick.try_send(());
            }
        });
        let mut watches = Watches { watcher: None, state, incomplete: false };
        match watcher {
            Ok(watcher) => watches.watcher = Some(watcher),
            Err(error) => watches.fail(&error),
        }
        watches
    }

    #[cfg(test)]
    pub(super) fn disabled(_: mpsc::Sender<()>) -> Watches {
        Watches { watcher: None, state: Arc::default(), incomplete: true }
    }

    fn works(&self) -> bool {
        !self.incomplete
    }

    /// True if there are directories that were not watched before. `changed`: the directories may be others than at the last call.
    fn update(&mut self, watched_dirs: &WatchedDirs, changed: bool) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        if !changed && !locked(&self.state).lost {
            return false;
        }
        let (stale, fresh) = locked(&self.state).want(watched_dirs);
        for path in stale.iter().chain(&fresh) {
            // Usually there is none; but a directory that was moved away may have left one under this path.
            let _ = watcher.unwatch(path);
        }
        let mut failure = None;
        let mut new = false;
        for path in fresh {
            match watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    // What came into it before its watch existed had no event.
                    locked(&self.state).changed_paths.add(&path);
                    new = true;
                }
                Err(error) => {
                    locked(&self.state).live.remove(&path);
                    if !is_gone(&error) {
                        failure = Some(error);
                    }
                }
            }
        }
        if let Some(error) = failure {
            self.fail(&error);
        }
        new
    }

    fn fail(&mut self, error: &notify::Error) {
        if !self.incomplete {
            self.incomplete = true;
            warn!(%error, "folder cannot be watched, it is read every 2 s instead; if a limit is the reason, raise fs.inotify.max_user_watches");
        }
    }
}

impl WatchState {
    /// The watches to end and those to begin. The latter count as live at once: if the directory is renamed
    /// before its watch exists, the event must find it here.
    fn want(&mut self, watched_dirs: &WatchedDirs) -> (Vec<PathBuf>, Vec<PathBuf>) {
        self.lost = false;
        if self.wanted != *watched_dirs {
            self.wanted = watched_dirs.clone();
        }
        let is_stale =
            |path: &PathBuf, identity: &Identity| watched_dirs.get(path).is_none_or(|p| p.identity != *identity);
        let stale: Vec<PathBuf> = self.live.iter().filter(|(p, i)| is_stale(p, i)).map(|(p, _)| p.clone()).collect();
        for path in &stale {
            self.live.remove(path);
        }
        let mut fresh = Vec::new();
        for (path, dir) in watched_dirs {
            if self.live.insert(path.clone(), dir.identity).is_none() {
                fresh.push(path.clone());
            }
        }
        (stale, fresh)
    }

    /// A file whose new path is not known yet must not seem deleted.
    fn take_changed_paths(&mut self) -> ChangedPaths {
        let changed_paths = std::mem::take(&mut self.changed_paths);
        if self.renaming { ChangedPaths::Anything } else { changed_paths }
    }

    fn concerns(&mut self, event: &notify::Result<notify::Event>) -> bool {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Events were lost, perhaps those of directories that lost their watches.
            _ => {
                self.live.clear();
                self.lost = true;
                self.changed_paths = ChangedPaths::Anything;
                return true;
            }
        };
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            // Caused by our own reading.
            EventKind::Access(_) => return false,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
                event.paths.iter().for_each(|p| self.remove_watch(p));
            }
            _ => {}
        }
        // Without a tracker it is the event of a moved directory itself, which follows both halves.
        self.renaming =
            event.kind == EventKind::Modify(ModifyKind::Name(RenameMode::From)) && event.tracker().is_some();
        let concerned: Vec<&PathBuf> = event.paths.iter().filter(|path| self.concerns_path(path)).collect();
        concerned.iter().for_each(|path| self.changed_paths.add(path));
        !concerned.is_empty()
    }

    fn concerns_path(&self, path: &Path) -> bool {
        if self.wanted.contains_key(path) {
            return true;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return true };
        match self.wanted.get(folder).map(|dir| &dir.interest) {
            Some(Interest::All) => !is_temporary(name),
            Some(Interest::Names(names)) => names.contains(name),
            None => false,
        }
    }

    fn remove_watch(&mut self, path: &Path) {
        if self.live.contains_key(path) {
            self.live.retain(|live, _| !live.starts_with(path));
            self.lost = true;
        }
    }
}

fn is_gone(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

fn locked(state: &Mutex<WatchState>) -> MutexGuard<'_, WatchState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

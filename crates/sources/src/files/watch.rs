//! Watching a folder: events, a short wait until it is quiet, one scan. Falls back to looking every two seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::store::Update;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::name::is_litter;
use super::tree::{Identity, Interest, Places};
use super::{Folder, Scan};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the scan of the folder failed")]
    Scan(#[source] tokio::task::JoinError),
}

/// Sends what changes until the receiver is dropped. The first thing sent is what changed since the last scan. Nothing at all is sent
/// whenever the folder is being written to and more is to come. `spent` is told how long each look took.
pub async fn watch(
    folder: Folder,
    out: mpsc::Sender<Vec<Update>>,
    spent: impl Fn(Duration) + Send,
) -> Result<(), Error> {
    watch_at(&PACE, Eyes::open, folder, out, spent).await
}

pub(super) struct Pace {
    /// A change is looked at when nothing happened for this long: an editor's save is several steps.
    pub(super) quiet: Duration,
    /// It is looked at after this long even if it is never quiet.
    pub(super) restless: Duration,
    /// How often to look without events, while watching does not work or the folder cannot be read.
    pub(super) poll: Duration,
    /// How often to look in case an event was lost, as on network file systems.
    pub(super) safety: Duration,
}

const PACE: Pace = Pace {
    quiet: Duration::from_millis(30),
    restless: Duration::from_millis(250),
    poll: Duration::from_secs(2),
    safety: Duration::from_secs(30),
};

pub(super) async fn watch_at(
    pace: &Pace,
    eyes: fn(mpsc::Sender<()>) -> Eyes,
    mut folder: Folder,
    out: mpsc::Sender<Vec<Update>>,
    spent: impl Fn(Duration) + Send,
) -> Result<(), Error> {
    // One waiting tick is enough: it says only that there is something to look at.
    let (tick, mut ticks) = mpsc::channel(1);
    let mut eyes = eyes(tick.clone());
    // When all of it is to be looked at, in case an event was lost.
    let mut whole = Instant::now();
    loop {
        let all = Instant::now() >= whole;
        let pass = tokio::task::spawn_blocking(move || Pass::new(folder, eyes, all));
        let done = pass.await.map_err(Error::Scan)?;
        (folder, eyes) = (done.folder, done.eyes);
        if done.whole {
            whole = Instant::now() + pace.safety;
        }
        spent(done.took);
        let Scan { updates, readable, .. } = done.scan;
        if !updates.is_empty() && out.send(updates).await.is_err() {
            return Ok(());
        }
        // What happened in a new place before it was watched would be missed.
        if done.new_places {
            continue;
        }
        let wait = if readable && eyes.works() { whole.saturating_duration_since(Instant::now()) } else { pace.poll };
        tokio::select! {
            () = out.closed() => return Ok(()),
            ticked = timeout(wait, ticks.recv()) => if ticked.is_ok() { settle(pace, &mut ticks, &out).await },
        }
    }
}

async fn settle(pace: &Pace, ticks: &mut mpsc::Receiver<()>, out: &mpsc::Sender<Vec<Update>>) {
    let end = Instant::now() + pace.restless;
    while Instant::now() < end {
        // Full: the receiver has enough to do.
        let _ = out.try_send(Vec::new());
        let quiet = (Instant::now() + pace.quiet).min(end);
        if timeout_at(quiet, ticks.recv()).await.is_err() {
            return;
        }
    }
}

struct Pass {
    folder: Folder,
    eyes: Eyes,
    scan: Scan,
    took: Duration,
    new_places: bool,
    /// All was looked at.
    whole: bool,
}

impl Pass {
    fn new(mut folder: Folder, mut eyes: Eyes, all: bool) -> Pass {
        let began = std::time::Instant::now();
        let touched = std::mem::take(&mut locked(&eyes.view).touched);
        let part = match touched {
            Touched::Paths(paths) if !all => folder.scan_files(&paths),
            _ => None,
        };
        let whole = part.is_none();
        let scan = part.unwrap_or_else(|| folder.scan());
        let took = began.elapsed();
        if !scan.updates.is_empty() {
            let count = |is: fn(&Update) -> bool| scan.updates.iter().filter(|update| is(update)).count();
            info!(
                files = scan.files,
                read = scan.read,
                changed = count(|update| matches!(update, Update::Put(_))),
                deleted = count(|update| matches!(update, Update::Delete(_))),
                noted = count(|update| matches!(update, Update::Notes { .. })),
                milliseconds = took.as_millis(),
                "folder changed"
            );
        }
        let new_places = eyes.turn_to(&folder.places);
        Pass { folder, eyes, scan, took, new_places, whole }
    }
}

/// The operating system's events for the places of a folder.
pub(super) struct Eyes {
    /// `None`: events cannot be had.
    watcher: Option<RecommendedWatcher>,
    view: Arc<Mutex<View>>,
    /// Some place is not watched.
    dim: bool,
}

/// What the event thread knows.
#[derive(Default)]
struct View {
    wanted: Places,
    /// Places with a watch. A renamed or deleted folder loses its watch, and those below it theirs.
    live: BTreeMap<PathBuf, Identity>,
    /// Since the last look.
    touched: Touched,
}

/// What events were about.
#[derive(Debug, Default, PartialEq, Eq)]
enum Touched {
    #[default]
    Nothing,
    Paths(BTreeSet<PathBuf>),
    /// It is not known, or too much.
    Anything,
}

impl Touched {
    fn add(&mut self, path: &Path) {
        /// With more, a whole scan costs about as much.
        const MOST: usize = 100;
        match self {
            Touched::Nothing => *self = Touched::Paths(BTreeSet::from([path.to_owned()])),
            Touched::Paths(paths) if paths.len() < MOST => drop(paths.insert(path.to_owned())),
            Touched::Paths(_) | Touched::Anything => *self = Touched::Anything,
        }
    }
}

impl Eyes {
    pub(super) fn open(tick: mpsc::Sender<()>) -> Eyes {
        let view = Arc::new(Mutex::new(View::default()));
        let seen = view.clone();
        let watcher = notify::recommended_watcher(move |event| {
            if locked(&seen).concerns(&event) {
                // Full: a look is due anyway.
                let _ = tick.try_send(());
            }
        });
        let mut eyes = Eyes { watcher: None, view, dim: false };
        match watcher {
            Ok(watcher) => eyes.watcher = Some(watcher),
            Err(error) => eyes.fail(&error),
        }
        eyes
    }

    #[cfg(test)]
    pub(super) fn shut(_: mpsc::Sender<()>) -> Eyes {
        Eyes { watcher: None, view: Arc::default(), dim: true }
    }

    fn works(&self) -> bool {
        !self.dim
    }

    /// True if there are places that were not watched before.
    fn turn_to(&mut self, places: &Places) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        let (stale, fresh) = locked(&self.view).want(places);
        for path in stale.iter().chain(&fresh) {
            // Mostly there is none; but a folder that was moved away may have left one under this path.
            let _ = watcher.unwatch(path);
        }
        let mut failure = None;
        let mut new = false;
        for path in fresh {
            match watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => new = true,
                Err(error) => {
                    locked(&self.view).live.remove(&path);
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
        if !self.dim {
            self.dim = true;
            warn!(%error, "folder cannot be watched, it is read every 2 s instead; if a limit is the reason, raise fs.inotify.max_user_watches");
        }
    }
}

impl View {
    /// Which watches to end and which to begin. Those to begin count as live at once: if the folder is renamed
    /// before its watch exists, the event must find it here.
    fn want(&mut self, places: &Places) -> (Vec<PathBuf>, Vec<PathBuf>) {
        self.wanted = places.clone();
        let is_stale = |path: &PathBuf, identity: &Identity| places.get(path).is_none_or(|p| p.identity != *identity);
        let stale: Vec<PathBuf> = self.live.iter().filter(|(p, i)| is_stale(p, i)).map(|(p, _)| p.clone()).collect();
        for path in &stale {
            self.live.remove(path);
        }
        let mut fresh = Vec::new();
        for (path, place) in places {
            if self.live.insert(path.clone(), place.identity).is_none() {
                fresh.push(path.clone());
            }
        }
        (stale, fresh)
    }

    fn concerns(&mut self, event: &notify::Result<notify::Event>) -> bool {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Events were lost, perhaps those of folders that lost their watches.
            _ => {
                self.live.clear();
                self.touched = Touched::Anything;
                return true;
            }
        };
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            // Our own reading.
            EventKind::Access(_) => return false,
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => {
                event.paths.iter().for_each(|p| self.lose(p));
            }
            _ => {}
        }
        let concerned: Vec<&PathBuf> = event.paths.iter().filter(|path| self.concerns_path(path)).collect();
        concerned.iter().for_each(|path| self.touched.add(path));
        !concerned.is_empty()
    }

    fn concerns_path(&self, path: &Path) -> bool {
        if self.wanted.contains_key(path) {
            return true;
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return true };
        match self.wanted.get(folder).map(|place| &place.interest) {
            Some(Interest::All) => !is_litter(name),
            Some(Interest::Names(names)) => names.contains(name),
            None => false,
        }
    }

    fn lose(&mut self, path: &Path) {
        if self.live.contains_key(path) {
            self.live.retain(|live, _| !live.starts_with(path));
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

fn locked(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

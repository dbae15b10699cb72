//! From changes of objects to new views: applied at once, worked in when the source is quiet. One at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use config::store::{Snapshot, Store, Update};
use sources::files::Folder;
use tokio::sync::mpsc::Receiver;
use tokio::task::spawn_blocking;
use tracing::{debug, error};
use views::Views;

use super::banner::Found;
use super::debounce;
use super::events::Events;
use super::notes::NoteLog;
use crate::commands::folder;
use crate::ops::metrics::Metrics;
use crate::settings::{Debounce, Mesh};

pub(crate) struct Pipeline {
    store: Store,
    /// The sequence of the snapshot that the views show.
    shown: u64,
    views: Arc<Views>,
    metrics: Arc<Metrics>,
    events: Events,
    notes: NoteLog,
}

/// After the first load.
pub(crate) struct First {
    pub(crate) folder: Folder,
    pub(crate) found: Found,
    pub(crate) pipeline: Pipeline,
}

impl Pipeline {
    /// Reads the folder and works it in; may take seconds.
    pub(crate) fn load(dir: &Path, mesh: &Mesh, views: Arc<Views>, metrics: Arc<Metrics>) -> Result<First> {
        let began = Instant::now();
        let mut events = Events::default();
        let loaded = folder::load_seen(dir, mesh, |updates| events.count(updates, &metrics))?;
        let snapshot = loaded.store.snapshot();
        refresh(&views, &metrics, &snapshot, began);
        let found = Found::new(&loaded, &snapshot);
        let pipeline =
            Pipeline { store: loaded.store, shown: snapshot.seq, views, metrics, events, notes: NoteLog::default() };
        Ok(First { folder: loaded.folder, found, pipeline })
    }

    pub(crate) fn log_notes(&mut self) {
        self.notes.log(self.store.snapshot().notes.iter().cloned());
    }

    /// Until the source is gone.
    pub(crate) async fn follow(mut self, mut source: Receiver<Vec<Update>>, limits: Debounce) {
        while let Some(waited) = debounce::batch(&mut source, limits, |updates| self.take(updates)).await {
            self.metrics.debounced(waited);
            let snapshot = self.store.snapshot();
            if snapshot.seq != self.shown {
                self.shown = snapshot.seq;
                let (views, metrics) = (self.views.clone(), self.metrics.clone());
                let refreshed = spawn_blocking(move || {
                    let began = Instant::now();
                    refresh(&views, &metrics, &snapshot, began.checked_sub(waited).unwrap_or(began));
                });
                if let Err(error) = refreshed.await {
                    error!(%error, "a change could not be worked in; proxies keep what they have");
                }
            }
            self.log_notes();
        }
    }

    fn take(&mut self, updates: Vec<Update>) {
        self.events.count(&updates, &self.metrics);
        self.store.apply(updates);
    }
}

/// `began`: when the oldest of the changes arrived.
fn refresh(views: &Views, metrics: &Metrics, snapshot: &Snapshot, began: Instant) {
    let start = Instant::now();
    let changed = views.refresh(snapshot, began);
    let took = start.elapsed();
    metrics.refreshed(took);
    let entries: usize = snapshot.service_entries.values().map(|entry| entry.spec.hosts.len()).sum();
    metrics.services.set(count(snapshot.services.len() + entries));
    metrics.virtual_services.set(count(snapshot.virtual_services.len()));
    debug!(seq = snapshot.seq, ?took, changed, "refreshed");
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

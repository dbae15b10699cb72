//! Keeps the history of resources up to date: takes the records of pushes soon after each, on a thread beside those that serve streams, and before
//! each question.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use history::ResourceHistory;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::error;
use views::Views;

use crate::history_folder::HistoryFolder;
use crate::metrics::Metrics;
use crate::settings::HistorySettings;

/// How often the limits are checked, however much is pushed.
const INTERVAL: Duration = Duration::from_secs(10);

pub struct HistoryRecorder {
    views: Arc<Views>,
    history: Mutex<ResourceHistory>,
    /// `None`: it is in memory only.
    folder: Option<HistoryFolder>,
    pushed: Notify,
    metrics: Arc<Metrics>,
}

impl HistoryRecorder {
    /// `None`: none is kept.
    pub(crate) fn new(
        views: &Arc<Views>,
        settings: Option<HistorySettings>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Arc<HistoryRecorder>>> {
        let Some(settings) = settings else { return Ok(None) };
        let mut history = ResourceHistory::new(settings.limits, SystemTime::now());
        let folder = HistoryFolder::open(&settings)?;
        if let Some(folder) = &folder {
            folder.load(&mut history);
            views.continue_after(history.seq());
            folder.begin_file(&mut history);
            history.trim(SystemTime::now());
        }
        views.keep_records();
        let history = Mutex::new(history);
        let (views, pushed, metrics) = (views.clone(), Notify::new(), metrics.clone());
        Ok(Some(Arc::new(HistoryRecorder { views, history, folder, pushed, metrics })))
    }

    /// There was a push.
    pub(crate) fn wake(&self) {
        self.pushed.notify_one();
    }

    /// Records pushes for as long as the process lives.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut checked = Instant::now();
        loop {
            // An error: nothing was pushed for so long.
            let _ = timeout(INTERVAL, self.pushed.notified()).await;
            let is_due = checked.elapsed() >= INTERVAL;
            if is_due {
                checked = Instant::now();
            }
            let recorder = self.clone();
            let recorded = spawn_blocking(move || {
                let mut history = recorder.current();
                if is_due || history.is_trim_due() {
                    history.trim(SystemTime::now());
                    recorder.metrics.history_bytes.set(i64::try_from(history.usage().bytes).unwrap_or(i64::MAX));
                }
                if let Some(folder) = recorder.folder.as_ref().filter(|folder| folder.is_file_full()) {
                    folder.begin_file(&mut history);
                }
            });
            if let Err(error) = recorded.await {
                error!(%error, "the history of resources misses a push");
            }
        }
    }

    /// The history including the newest push.
    pub fn current(&self) -> MutexGuard<'_, ResourceHistory> {
        // A panic loses a push of the history at most.
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(records) = self.views.take_records() {
            history.record(records);
            if let Some(folder) = &self.folder {
                folder.flush();
            }
        }
        history
    }
}

//! Keeps the history of resources up to date: takes the records of pushes soon after each, on a thread beside those that serve streams, and before
//! each question.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use history::ResourceHistory;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::error;
use views::Views;

use crate::settings::HistorySettings;

/// How often the limits are checked without a push.
const INTERVAL: Duration = Duration::from_secs(10);

pub struct HistoryRecorder {
    views: Arc<Views>,
    history: Mutex<ResourceHistory>,
    pushed: Notify,
}

impl HistoryRecorder {
    /// `None`: none is kept.
    pub(crate) fn new(views: &Arc<Views>, settings: Option<HistorySettings>) -> Option<Arc<HistoryRecorder>> {
        let HistorySettings { limits } = settings?;
        views.keep_records();
        let history = Mutex::new(ResourceHistory::new(limits, SystemTime::now()));
        Some(Arc::new(HistoryRecorder { views: views.clone(), history, pushed: Notify::new() }))
    }

    /// There was a push.
    pub(crate) fn wake(&self) {
        self.pushed.notify_one();
    }

    /// Records pushes for as long as the process lives.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let pushed = timeout(INTERVAL, self.pushed.notified()).await.is_ok();
            let recorder = self.clone();
            let recorded = spawn_blocking(move || {
                let mut history = recorder.current();
                if !pushed || history.is_trim_due() {
                    history.trim(SystemTime::now());
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
        }
        history
    }
}

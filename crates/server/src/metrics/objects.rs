//! The objects in use, for metrics and authentication.

use std::sync::{Arc, Mutex, PoisonError};

use config::store::Snapshot;

#[derive(Default)]
pub struct CurrentObjects(Mutex<Option<Arc<Snapshot>>>);

impl CurrentObjects {
    pub fn set(&self, snapshot: Arc<Snapshot>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// `None`: nothing has been read yet.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

//! Objects with which the mesh cannot be computed, because of a panic: they stay at their last good version, and are named in a diagnostic, until they
//! change. Panics while resources are translated are caught in the crate `views`.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use config::diagnostic::{Diagnostic, ObjectId};
use config::store::{Snapshot, Update};
use tracing::error;

use super::cause::Cause;
use super::{Pipeline, refresh};

#[derive(Default)]
pub(super) struct Quarantine(BTreeSet<ObjectId>);

/// Changes of objects that a refresh panicked with.
#[derive(Debug)]
pub(crate) struct PanickedBatch {
    objects: Vec<Update>,
    before: Arc<Snapshot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefreshPanic {
    /// Nothing was changed.
    #[error("the mesh cannot be computed, whichever of the last changes are left out")]
    Mesh,
    #[error("the configuration of proxies was left half refreshed")]
    Views,
}

impl Quarantine {
    /// Objects that change leave the quarantine: returns the updates that resolve their diagnostics.
    pub(super) fn release(&mut self, updates: &[Update]) -> Vec<Update> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let changed: Vec<ObjectId> = updates.iter().filter_map(changed_object).filter(|id| self.0.remove(id)).collect();
        changed.iter().map(|id| diagnostic_update(id, None)).collect()
    }
}

impl PanickedBatch {
    pub(super) fn new(updates: &[Update], before: Arc<Snapshot>) -> PanickedBatch {
        let objects = updates.iter().filter(|update| changed_object(update).is_some()).cloned().collect();
        PanickedBatch { objects, before }
    }
}

impl Pipeline {
    /// The first refresh, without the objects that it panics with.
    pub(super) fn refresh_first(&mut self, began: Instant) -> Result<(), RefreshPanic> {
        match self.try_refresh(&Cause::start(), began) {
            Err(RefreshPanic::Mesh) => {
                let objects = self.store.snapshot().objects().into_iter().map(Update::Put).collect();
                self.quarantine_batch(PanickedBatch { objects, before: Arc::new(Snapshot::empty()) })
            }
            outcome => outcome,
        }
    }

    /// Applies a batch in halves, down to single objects, and leaves out those that a refresh panics with.
    pub(super) fn quarantine_batch(&mut self, batch: PanickedBatch) -> Result<(), RefreshPanic> {
        let PanickedBatch { objects, before } = batch;
        if self.views.is_broken() {
            return Err(RefreshPanic::Views);
        }
        self.store.apply(reversed(&objects, &before));
        let mut left = vec![objects];
        while let Some(mut part) = left.pop() {
            let good = self.store.snapshot();
            self.store.apply(part.clone());
            match self.try_refresh(&Cause::of(&part), Instant::now()) {
                Ok(()) => continue,
                Err(RefreshPanic::Views) => return Err(RefreshPanic::Views),
                Err(RefreshPanic::Mesh) => drop(self.store.apply(reversed(&part, &good))),
            }
            match &part[..] {
                [] => {}
                [one] => self.exclude(one),
                _ => {
                    let second = part.split_off(part.len() / 2);
                    left.extend([second, part]);
                }
            }
        }
        // With what is no object: keys, mesh config.
        self.try_refresh(&Cause::of(&[]), Instant::now())
    }

    fn exclude(&mut self, update: &Update) {
        let Some(id) = changed_object(update) else { return };
        error!(object = %id, "object left at its last good version because of an internal error");
        let diagnostic = Diagnostic::error(
            "the mesh cannot be computed with this version of the object because of an internal error; its last good version stays in force; \
             change it, and report the error with the log",
        );
        self.store.apply(vec![diagnostic_update(&id, Some(diagnostic.on(id.clone())))]);
        self.quarantine.0.insert(id);
    }

    fn try_refresh(&mut self, cause: &Cause, began: Instant) -> Result<(), RefreshPanic> {
        let snapshot = self.store.snapshot();
        let refreshed = catch_unwind(AssertUnwindSafe(|| refresh(&self.views, &self.metrics, cause, &snapshot, began)));
        match refreshed {
            Ok(notifications) => {
                notifications.notify_all();
                self.refreshed = snapshot.seq;
                self.metrics.objects.set(snapshot.clone());
                self.objects.send_replace(snapshot.clone());
                self.published_objects.send_replace(snapshot);
                Ok(())
            }
            Err(_) if self.views.is_broken() => Err(RefreshPanic::Views),
            Err(_) => Err(RefreshPanic::Mesh),
        }
    }
}

/// `None`: the update is not of an object.
fn changed_object(update: &Update) -> Option<ObjectId> {
    match update {
        Update::Put(object) => Some(object.id()),
        Update::Delete(id) => Some(id.clone()),
        Update::Keys { .. } | Update::Diagnostics { .. } | Update::MeshConfig(_) | Update::ObjectStatus { .. } => None,
    }
}

/// What takes these updates back.
fn reversed(updates: &[Update], before: &Snapshot) -> Vec<Update> {
    let ids = updates.iter().filter_map(changed_object);
    ids.map(|id| before.object(&id).map_or(Update::Delete(id), Update::Put)).collect()
}

/// `None`: resolves the diagnostic.
fn diagnostic_update(id: &ObjectId, diagnostic: Option<Diagnostic>) -> Update {
    Update::Diagnostics { source: format!("quarantine of {id}"), diagnostics: diagnostic.into_iter().collect() }
}

#[cfg(test)]
pub(super) mod tests;

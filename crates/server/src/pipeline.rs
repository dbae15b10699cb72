//! The push pipeline: batches of changes are applied to the store, views are refreshed, streams are notified. Which changes make a batch is
//! decided in `debounce`.

mod cause;
mod diagnostics;
mod mesh_config;
mod quarantine;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use config::diagnostic::Diagnostic;
use config::store::{Snapshot, Store, Update};
use sources::files::Folder;
use sources::jwks::{self, KeyRequests};
use sources::kube::NamespaceScope;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::task::{spawn_blocking, yield_now};
use tracing::{debug, error};
use views::{PendingNotifications, Views};
use xds::Stage;

use crate::banner::Found;
use crate::debounce::{Batch, Debouncer};
use crate::folder;
use crate::history_recorder::HistoryRecorder;
use crate::metrics::{EventCounter, Metrics};
use crate::settings::{DebounceSettings, MeshSettings};
use cause::Cause;
use diagnostics::DiagnosticLog;
pub(crate) use mesh_config::RevisionMeshConfig;
use quarantine::{PanickedBatch, Quarantine};

/// Streams that are notified at a time, per thread that serves them. The state of a stream is a few kilobytes, so that a batch fits into
/// the cache of its thread.
const NOTIFIED_AT_ONCE: usize = 64;

pub(crate) struct Pipeline {
    store: Store,
    /// The sequence of the snapshot that the views were refreshed with.
    refreshed: u64,
    views: Arc<Views>,
    /// `None`: no history is kept.
    history: Option<Arc<HistoryRecorder>>,
    metrics: Arc<Metrics>,
    events: EventCounter,
    diagnostics: DiagnosticLog,
    quarantine: Quarantine,
    wanted_keys: watch::Sender<KeyRequests>,
    /// `None`: the source is a folder, which is read whole.
    scope: Option<watch::Sender<NamespaceScope>>,
    /// The objects in use, for leader tasks and signers.
    objects: watch::Sender<Arc<Snapshot>>,
    /// The same after views were refreshed with them, with their diagnostics.
    published_objects: watch::Sender<Arc<Snapshot>>,
    /// `None`: the mesh config is in the ConfigMap `istio`.
    revision_mesh_config: Option<RevisionMeshConfig>,
}

/// After the first load.
pub(crate) struct LoadedPipeline {
    pub(crate) folder: Folder,
    pub(crate) found: Found,
    pub(crate) pipeline: Pipeline,
}

impl Pipeline {
    /// Reads the folder and refreshes the views; may take seconds.
    pub(crate) fn load(
        dir: &Path,
        mesh: &MeshSettings,
        views: Arc<Views>,
        metrics: Arc<Metrics>,
    ) -> Result<LoadedPipeline> {
        let began = Instant::now();
        let mut events = EventCounter::default();
        let load = || folder::load_observed(dir, mesh, |updates| events.count(updates, &metrics));
        let loaded = metrics.stages().run_long(Stage::InformerCache, load)?;
        let snapshot = loaded.store.snapshot();
        let found = Found::new(&loaded, &snapshot);
        let mut pipeline = Pipeline {
            revision_mesh_config: Some(RevisionMeshConfig::of(mesh)),
            objects: watch::Sender::new(snapshot.clone()),
            published_objects: watch::Sender::new(snapshot.clone()),
            wanted_keys: watch::Sender::new(jwks::wanted(&snapshot.request_authentications)),
            store: loaded.store,
            refreshed: snapshot.seq,
            views,
            history: None,
            metrics,
            events,
            diagnostics: DiagnosticLog::default(),
            quarantine: Quarantine::default(),
            scope: None,
        };
        pipeline.refresh_first(began)?;
        Ok(LoadedPipeline { folder: loaded.folder, found, pipeline })
    }

    /// With no objects: streams get UNAVAILABLE until `publish_first`.
    pub(crate) fn empty(
        store: Store,
        views: Arc<Views>,
        metrics: Arc<Metrics>,
        scope: watch::Sender<NamespaceScope>,
    ) -> Pipeline {
        Pipeline {
            revision_mesh_config: None,
            objects: watch::Sender::new(store.snapshot()),
            published_objects: watch::Sender::new(store.snapshot()),
            wanted_keys: watch::Sender::default(),
            refreshed: store.snapshot().seq,
            store,
            views,
            history: None,
            metrics,
            events: EventCounter::default(),
            diagnostics: DiagnosticLog::default(),
            quarantine: Quarantine::default(),
            scope: Some(scope),
        }
    }

    /// Called before the first object.
    pub(crate) fn take_mesh_config_from(&mut self, revision_mesh_config: RevisionMeshConfig) {
        self.revision_mesh_config = Some(revision_mesh_config);
    }

    fn with_revision_mesh_config(&self, updates: Vec<Update>) -> Vec<Update> {
        match &self.revision_mesh_config {
            Some(revision_mesh_config) => revision_mesh_config.apply(updates),
            None => updates,
        }
    }

    /// Stores objects of a source that is not complete yet.
    pub(crate) fn store(&mut self, updates: Vec<Update>) -> Arc<Snapshot> {
        self.events.count(&updates, &self.metrics);
        let updates = self.with_revision_mesh_config(updates);
        self.metrics.stages().run_long(Stage::InformerCache, || self.store.apply(updates))
    }

    /// Refreshes the views for the first time; may take seconds.
    pub(crate) fn publish_first(&mut self) -> Result<Arc<Snapshot>> {
        self.refresh_first(Instant::now())?;
        let snapshot = self.store.snapshot();
        self.wanted_keys.send_replace(jwks::wanted(&snapshot.request_authentications));
        Ok(snapshot)
    }

    pub(crate) fn stages(&self) -> xds::Stages {
        self.metrics.stages().clone()
    }

    /// The recorder is woken after each push.
    pub(crate) fn record_history(&mut self, history: Option<Arc<HistoryRecorder>>) {
        self.history = history;
    }

    pub(crate) fn root_namespace(&self) -> String {
        self.store.snapshot().mesh.root_namespace.clone()
    }

    pub(crate) fn log_diagnostics(&mut self) {
        self.diagnostics.log(diagnostics(&self.store.snapshot(), &self.views));
    }

    pub(crate) fn objects(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.objects.subscribe()
    }

    pub(crate) fn published_objects(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.published_objects.subscribe()
    }

    /// Key sets of token issuers that policies name, as they change.
    pub(crate) fn wanted_keys(&self) -> watch::Receiver<KeyRequests> {
        self.wanted_keys.subscribe()
    }

    /// Applies batches until the source is closed, or a panic makes it impossible to go on.
    pub(crate) async fn follow(mut self, mut source: Receiver<Vec<Update>>, limits: DebounceSettings) {
        let mut debouncer = Debouncer::new(limits);
        loop {
            let objects = self.store.snapshot();
            let (events, metrics, wanted) = (&mut self.events, &self.metrics, &self.wanted_keys);
            let mut pending = debouncer.len();
            let batch = debouncer.next_batch(&mut source, &objects, |updates| {
                events.count(updates, metrics);
                // At once, so that keys are fetched during the debounce.
                wanted.send_if_modified(|current| jwks::add_key_requests(current, updates));
                pending += updates.len();
                metrics.streams.memory().set(Stage::Debounce, pending * size_of::<Update>());
            });
            let Some(Batch { updates, waited, spent }) = batch.await else { return };
            self.metrics.streams.memory().set(Stage::Debounce, debouncer.len() * size_of::<Update>());
            self.metrics.stages().add(Stage::Debounce, spent);
            self.metrics.observe_debounce(waited);
            if let Err(batch) = self.apply_batch(updates, waited).await {
                let quarantined = spawn_blocking(move || {
                    let outcome = self.quarantine_batch(batch);
                    (self, outcome)
                });
                match quarantined.await {
                    Ok((pipeline, Ok(()))) => self = pipeline,
                    Ok((_, Err(error))) => return error!(%error, "changes can no longer be applied"),
                    Err(error) => return error!(%error, "changes can no longer be applied"),
                }
            }
            // Of a change of statuses alone, nothing is worth a look at the whole mesh.
            let after = self.store.snapshot();
            if after.seq != objects.seq || after.diagnostics != objects.diagnostics {
                self.log_diagnostics();
            }
        }
    }

    /// Fails if the refresh panicked: proxies keep their configuration, and the batch has to be quarantined.
    pub(crate) async fn apply_batch(&mut self, updates: Vec<Update>, waited: Duration) -> Result<(), PanickedBatch> {
        let (cause, before) = (Cause::of(&updates), self.store.snapshot());
        let mut updates = self.with_revision_mesh_config(updates);
        updates.extend(self.quarantine.release(&updates));
        let batch = PanickedBatch::new(&updates, before.clone());
        let snapshot = self.metrics.stages().run_long(Stage::InformerCache, || self.store.apply(updates));
        if snapshot.seq == self.refreshed {
            // With the statuses and diagnostics of now.
            self.metrics.objects.set(snapshot.clone());
            self.published_objects
                .send_if_modified(|current| !Arc::ptr_eq(&std::mem::replace(current, snapshot.clone()), &snapshot));
            return Ok(());
        }
        self.objects.send_replace(snapshot.clone());
        let scope_unchanged =
            Arc::ptr_eq(&before.mesh, &snapshot.mesh) && before.namespaces.ptr_eq(&snapshot.namespaces);
        if let Some(scope) = self.scope.as_ref().filter(|_| !scope_unchanged) {
            let next = NamespaceScope::new(&snapshot);
            scope.send_if_modified(|current| std::mem::replace(current, next.clone()) != next);
        }
        if !before.request_authentications.ptr_eq(&snapshot.request_authentications) {
            let wanted = jwks::wanted(&snapshot.request_authentications);
            self.wanted_keys.send_if_modified(|current| std::mem::replace(current, wanted.clone()) != wanted);
        }
        self.refreshed = snapshot.seq;
        self.metrics.objects.set(snapshot.clone());
        let (views, metrics, applied) = (self.views.clone(), self.metrics.clone(), snapshot.clone());
        let refreshed = spawn_blocking(move || {
            let began = Instant::now();
            refresh(&views, &metrics, &cause, &snapshot, began.checked_sub(waited).unwrap_or(began))
        });
        match refreshed.await {
            Ok(notifications) => {
                let (stages, history) = (self.stages(), self.history.clone());
                tokio::spawn(async move {
                    notify(notifications, stages).await;
                    if let Some(history) = history {
                        history.wake();
                    }
                });
                self.published_objects.send_replace(applied);
                Ok(())
            }
            Err(error) => {
                error!(%error, "refresh failed: proxies keep their configuration, and the batch is applied object by object");
                Err(batch)
            }
        }
    }
}

/// Diagnostics of objects, each by itself and in the mesh.
pub(crate) fn diagnostics(snapshot: &Snapshot, views: &Views) -> impl Iterator<Item = Diagnostic> {
    let mesh = views.mesh();
    let merged = mesh
        .into_iter()
        .flat_map(|mesh| mesh.diagnostics().into_iter().chain(mesh.policy_diagnostics()).collect::<Vec<_>>());
    snapshot.diagnostics.iter().cloned().chain(merged).chain(views.translation_diagnostics())
}

/// `began`: when the oldest of the changes arrived.
fn refresh(
    views: &Views,
    metrics: &Metrics,
    cause: &Cause,
    snapshot: &Snapshot,
    began: Instant,
) -> PendingNotifications {
    #[cfg(test)]
    quarantine::tests::panic_if_injected(snapshot);
    let start = Instant::now();
    let Cause { push: cause, kind } = cause;
    let notifications =
        metrics.stages().run_long(Stage::PushContext, || views.refresh_with_cause(cause, snapshot, began));
    let took = start.elapsed();
    metrics.observe_refresh(took, *kind);
    let entries: usize = snapshot.service_entries.values().map(|entry| entry.spec.hosts.len()).sum();
    metrics.services.set(count(snapshot.services.len() + entries));
    metrics.virtual_services.set(count(snapshot.virtual_services.len()));
    debug!(seq = snapshot.seq, ?took, changed = !notifications.is_empty(), cause = cause.text, "refreshed");
    notifications
}

/// In batches and on a thread that serves streams: what a notification touches is still in the cache when the stream is polled.
pub(crate) async fn notify(mut notifications: PendingNotifications, stages: xds::Stages) {
    let batch_size = NOTIFIED_AT_ONCE * Handle::current().metrics().num_workers();
    while stages.run_long(Stage::PushContext, || notifications.notify_batch(batch_size)) {
        yield_now().await;
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

//! From changes of objects to new views, one batch at a time. Which changes go together is decided in `waiting`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use config::note::Note;
use config::store::{Snapshot, Store, Update};
use sources::files::Folder;
use sources::jwks::{self, Wanted};
use sources::kube::Scope;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::task::{spawn_blocking, yield_now};
use tracing::{debug, error};
use views::{News, Views};
use xds::Stage;

use super::banner::Found;
use super::events::Events;
use super::notes::NoteLog;
use super::own_mesh::OwnMesh;
use super::waiting::{Batch, Waiting};
use crate::commands::folder;
use crate::ops::metrics::{Metrics, Reach};
use crate::settings::{Debounce, Mesh};

/// Streams that are told of a change at a time, for each thread that serves them. Their state is some kilobytes.
const FEW: usize = 64;

pub(crate) struct Pipeline {
    store: Store,
    /// The sequence of the snapshot that the views show.
    shown: u64,
    views: Arc<Views>,
    metrics: Arc<Metrics>,
    events: Events,
    notes: NoteLog,
    wanted_keys: watch::Sender<Wanted>,
    /// `None`: the source is a folder, which is read whole.
    scope: Option<watch::Sender<Scope>>,
    /// The objects that are in force, for those who write to the cluster.
    objects: watch::Sender<Arc<Snapshot>>,
    /// The same after proxies could see them, and with what is said of them.
    shown_objects: watch::Sender<Arc<Snapshot>>,
    /// `None`: the mesh config is where it always is.
    own_mesh: Option<OwnMesh>,
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
        let load = || folder::load_seen(dir, mesh, |updates| events.count(updates, &metrics));
        let loaded = metrics.stages().run_long(Stage::InformerCache, load)?;
        let snapshot = loaded.store.snapshot();
        metrics.objects.set(snapshot.clone());
        refresh(&views, &metrics, &Cause { what: "start".to_owned(), reach: Reach::More }, &snapshot, began).tell_all();
        let found = Found::new(&loaded, &snapshot);
        let pipeline = Pipeline {
            own_mesh: None,
            objects: watch::Sender::new(snapshot.clone()),
            shown_objects: watch::Sender::new(snapshot.clone()),
            wanted_keys: watch::Sender::new(jwks::wanted(&snapshot.request_authentications)),
            store: loaded.store,
            shown: snapshot.seq,
            views,
            metrics,
            events,
            notes: NoteLog::default(),
            scope: None,
        };
        Ok(First { folder: loaded.folder, found, pipeline })
    }

    /// With nothing to show yet: proxies are told to wait.
    pub(crate) fn waiting(
        store: Store,
        views: Arc<Views>,
        metrics: Arc<Metrics>,
        scope: watch::Sender<Scope>,
    ) -> Pipeline {
        Pipeline {
            own_mesh: None,
            objects: watch::Sender::new(store.snapshot()),
            shown_objects: watch::Sender::new(store.snapshot()),
            wanted_keys: watch::Sender::default(),
            shown: store.snapshot().seq,
            store,
            views,
            metrics,
            events: Events::default(),
            notes: NoteLog::default(),
            scope: Some(scope),
        }
    }

    /// Before any object comes.
    pub(crate) fn take_mesh_config_from(&mut self, own_mesh: OwnMesh) {
        self.own_mesh = Some(own_mesh);
    }

    fn adopted(&self, updates: Vec<Update>) -> Vec<Update> {
        match &self.own_mesh {
            Some(own_mesh) => own_mesh.adopted(updates),
            None => updates,
        }
    }

    /// Holds objects of a source that is not complete yet.
    pub(crate) fn hold(&mut self, updates: Vec<Update>) -> Arc<Snapshot> {
        self.events.count(&updates, &self.metrics);
        let updates = self.adopted(updates);
        self.metrics.stages().run_long(Stage::InformerCache, || self.store.apply(updates))
    }

    /// Shows what is held for the first time; may take seconds.
    pub(crate) fn show(&mut self) -> Arc<Snapshot> {
        let snapshot = self.store.snapshot();
        self.shown = snapshot.seq;
        self.metrics.objects.set(snapshot.clone());
        self.wanted_keys.send_replace(jwks::wanted(&snapshot.request_authentications));
        self.objects.send_replace(snapshot.clone());
        let cause = Cause { what: "start".to_owned(), reach: Reach::More };
        refresh(&self.views, &self.metrics, &cause, &snapshot, Instant::now()).tell_all();
        self.shown_objects.send_replace(snapshot.clone());
        snapshot
    }

    pub(crate) fn stages(&self) -> xds::Stages {
        self.metrics.stages().clone()
    }

    pub(crate) fn root_namespace(&self) -> String {
        self.store.snapshot().mesh.root_namespace.clone()
    }

    pub(crate) fn log_notes(&mut self) {
        self.notes.log(notes(&self.store.snapshot(), &self.views));
    }

    pub(crate) fn objects(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.objects.subscribe()
    }

    pub(crate) fn shown_objects(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shown_objects.subscribe()
    }

    /// Keys of token issuers that the policies want, as they change.
    pub(crate) fn wanted_keys(&self) -> watch::Receiver<Wanted> {
        self.wanted_keys.subscribe()
    }

    /// Until the source is gone.
    pub(crate) async fn follow(mut self, mut source: Receiver<Vec<Update>>, limits: Debounce) {
        let mut waiting = Waiting::new(limits);
        loop {
            let objects = self.store.snapshot();
            let (events, metrics, wanted) = (&mut self.events, &self.metrics, &self.wanted_keys);
            let mut held = waiting.len();
            let batch = waiting.batch(&mut source, &objects, |updates| {
                events.count(updates, metrics);
                // At once, so that the keys come while the change still waits for others.
                wanted.send_if_modified(|held| jwks::add_wanted(held, updates));
                held += updates.len();
                metrics.streams.memory().set(Stage::Debounce, held * size_of::<Update>());
            });
            let Some(Batch { updates, waited, spent }) = batch.await else { return };
            self.metrics.streams.memory().set(Stage::Debounce, waiting.len() * size_of::<Update>());
            self.metrics.stages().add(Stage::Debounce, spent);
            self.metrics.debounced(waited);
            self.work_in(updates, waited).await;
            self.log_notes();
        }
    }

    pub(crate) async fn work_in(&mut self, updates: Vec<Update>, waited: Duration) {
        let (cause, before) = (Cause::of(&updates), self.store.snapshot());
        let updates = self.adopted(updates);
        let snapshot = self.metrics.stages().run_long(Stage::InformerCache, || self.store.apply(updates));
        if snapshot.seq == self.shown {
            self.shown_objects
                .send_if_modified(|held| !Arc::ptr_eq(&std::mem::replace(held, snapshot.clone()), &snapshot));
            return;
        }
        self.objects.send_replace(snapshot.clone());
        let framed = Arc::ptr_eq(&before.mesh, &snapshot.mesh) && before.namespaces.ptr_eq(&snapshot.namespaces);
        if let Some(scope) = self.scope.as_ref().filter(|_| !framed) {
            let next = Scope::new(&snapshot);
            scope.send_if_modified(|held| std::mem::replace(held, next.clone()) != next);
        }
        if !before.request_authentications.ptr_eq(&snapshot.request_authentications) {
            let wanted = jwks::wanted(&snapshot.request_authentications);
            self.wanted_keys.send_if_modified(|held| std::mem::replace(held, wanted.clone()) != wanted);
        }
        self.shown = snapshot.seq;
        self.metrics.objects.set(snapshot.clone());
        let (views, metrics, worked_in) = (self.views.clone(), self.metrics.clone(), snapshot.clone());
        let refreshed = spawn_blocking(move || {
            let began = Instant::now();
            refresh(&views, &metrics, &cause, &snapshot, began.checked_sub(waited).unwrap_or(began))
        });
        match refreshed.await {
            Ok(news) => {
                tokio::spawn(tell(news, self.stages()));
                self.shown_objects.send_replace(worked_in);
            }
            Err(error) => error!(%error, "a change could not be worked in; proxies keep what they have"),
        }
    }
}

/// What is wrong with objects, by themselves and beside others.
pub(crate) fn notes(snapshot: &Snapshot, views: &Views) -> impl Iterator<Item = Note> {
    let mesh = views.mesh();
    let merged =
        mesh.into_iter().flat_map(|mesh| mesh.notes().into_iter().chain(mesh.policy_notes()).collect::<Vec<_>>());
    snapshot.notes.iter().cloned().chain(merged)
}

struct Cause {
    what: String,
    reach: Reach,
}

impl Cause {
    fn of(updates: &[Update]) -> Cause {
        Cause { what: cause(updates), reach: Reach::of(updates) }
    }
}

/// What changed, for people.
fn cause(updates: &[Update]) -> String {
    const NAMED: usize = 3;
    let named = updates.iter().filter_map(|update| match update {
        Update::Put(object) => Some(object.id().to_string()),
        Update::Delete(id) => Some(format!("{id} deleted")),
        Update::MeshConfig(text) => Some(format!("mesh config {}", text.file)),
        Update::Keys { source, .. } => Some(format!("keys of {source}")),
        Update::Notes { .. } | Update::Standing { .. } => None,
    });
    let all: Vec<String> = named.collect();
    let first = all[..all.len().min(NAMED)].join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}

/// `began`: when the oldest of the changes arrived.
fn refresh(views: &Views, metrics: &Metrics, cause: &Cause, snapshot: &Snapshot, began: Instant) -> News {
    let start = Instant::now();
    let Cause { what: cause, reach } = cause;
    let news = metrics.stages().run_long(Stage::PushContext, || views.refresh_for(cause, snapshot, began));
    let took = start.elapsed();
    metrics.refreshed(took, *reach);
    let entries: usize = snapshot.service_entries.values().map(|entry| entry.spec.hosts.len()).sum();
    metrics.services.set(count(snapshot.services.len() + entries));
    metrics.virtual_services.set(count(snapshot.virtual_services.len()));
    debug!(seq = snapshot.seq, ?took, changed = !news.is_empty(), cause, "refreshed");
    news
}

/// A few streams at a time, from where they run: what is touched to wake them is still at hand when they speak, and when they are answered.
async fn tell(mut news: News, stages: xds::Stages) {
    let few = FEW * Handle::current().metrics().num_workers();
    while stages.run_long(Stage::PushContext, || news.tell(few)) {
        yield_now().await;
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::kind::Kind;
    use config::note::ObjectId;

    #[test]
    fn a_cause_names_a_few_objects() {
        let gone =
            |name: &str| Update::Delete(ObjectId { kind: Kind::Service, namespace: "shop".into(), name: name.into() });
        assert_eq!(cause(&[gone("a")]), "Service shop/a deleted");
        let many: Vec<Update> = ["a", "b", "c", "d", "e"].map(gone).into();
        assert_eq!(cause(&many), "Service shop/a deleted, Service shop/b deleted, Service shop/c deleted and 2 more");
        assert_eq!(cause(&[Update::Notes { source: "f".into(), notes: Vec::new() }]), "");
    }
}

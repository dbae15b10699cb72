//! Watches of an API server, with a store of the objects that they have brought so far.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::store::{Snapshot, Store, StoreOptions, Update};
use sources::kube::{EndpointKind, KubeClient, KubeOptions, KubeSource, NamespaceScope, Pacing, State, WatchesHealth};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::api::AppliedObject;
use crate::wait::DEADLINE;

pub struct WatchedStore {
    pub received: ReceivedObjects,
    pub health: WatchesHealth,
    updates: mpsc::Receiver<Vec<Update>>,
}

pub struct ReceivedObjects {
    pub store: Store,
    /// The current objects.
    pub ids: HashSet<ObjectId>,
    /// Deletions that came, ever.
    pub deletions: usize,
    scope: watch::Sender<NamespaceScope>,
    /// When other namespaces began to matter.
    rescoped: Option<Instant>,
}

/// The options of the program, with shorter intervals.
pub fn options(pacing: Pacing) -> KubeOptions {
    KubeOptions {
        pod_namespace: "istio-system".into(),
        namespaces: std::collections::BTreeSet::new(),
        endpoints: EndpointKind::EndpointSlice,
        revision: "".into(),
        mesh_config: "istio".into(),
        pacing,
    }
}

impl ReceivedObjects {
    fn take(&mut self, updates: Vec<Update>) -> Arc<Snapshot> {
        for update in &updates {
            match update {
                Update::Put(object) => drop(self.ids.insert(object.id())),
                Update::Delete(id) => {
                    self.ids.remove(id);
                    self.deletions += 1;
                }
                _ => {}
            }
        }
        let snapshot = self.store.apply(updates);
        let scope = NamespaceScope::new(&snapshot);
        if self.scope.send_if_modified(|current| std::mem::replace(current, scope.clone()) != scope) {
            self.rescoped = Some(Instant::now());
        }
        snapshot
    }

    pub fn holds(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.ids.contains(&ObjectId { kind, namespace: namespace.into(), name: name.into() })
    }
}

impl WatchedStore {
    /// After the first list of every kind.
    pub async fn start(client: KubeClient, options: KubeOptions) -> WatchedStore {
        let (out, mut updates) = mpsc::channel(64);
        let cluster = KubeSource::new(client, options, out);
        let mut received = ReceivedObjects {
            store: Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None }),
            ids: HashSet::new(),
            deletions: 0,
            scope: cluster.scope(),
            rescoped: None,
        };
        cluster.first(&mut updates, |updates| received.take(updates)).await;
        WatchedStore { received, health: cluster.health(), updates }
    }

    /// Takes what comes until it is as wanted.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&WatchedStore) -> bool) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        while !wanted(self) {
            let step = (Instant::now() + Duration::from_millis(20)).min(end);
            match timeout_at(step, self.updates.recv()).await {
                Ok(Some(updates)) => drop(self.received.take(updates)),
                Ok(None) => bail!("the watches ended"),
                Err(_) if Instant::now() >= end => {
                    bail!("waited {DEADLINE:?} for {what}; {:#?}", self.health.snapshot())
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes what comes for this long.
    pub async fn receive_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Ok(updates) = timeout_at(end, self.updates.recv()).await {
            match updates {
                Some(updates) => drop(self.received.take(updates)),
                None => bail!("the watches ended"),
            }
        }
        Ok(())
    }

    /// Until the watches have come as far as these writes, and the deleted are gone.
    pub async fn catch_up(&mut self, written: &[AppliedObject], deleted: &HashSet<ObjectId>) -> Result<()> {
        let mut versions: BTreeMap<&str, u64> = BTreeMap::new();
        for AppliedObject { kind, version, .. } in written {
            let newest = versions.entry(kind).or_default();
            *newest = (*newest).max(*version);
        }
        let came = |live: &WatchedStore| {
            let watches = live.health.snapshot();
            let reached = |kind: Kind, version: u64| {
                watches.iter().filter(|(it, _)| it.kind == kind).all(|(_, watch)| watch.version >= version)
            };
            let named = |name: &str| Kind::ALL.into_iter().find(|kind| kind.name() == name);
            // What a new scope brings is listed by watches that have noticed it.
            let settled = live.received.rescoped.is_none_or(|at| at.elapsed() > Duration::from_millis(500))
                && watches.iter().all(|(_, watch)| matches!(watch.state, State::Live | State::Absent));
            settled
                && versions.iter().all(|(name, version)| named(name).is_none_or(|kind| reached(kind, *version)))
                && live.received.ids.is_disjoint(deleted)
        };
        self.until("the watches to bring what was written", came).await?;
        while let Ok(updates) = self.updates.try_recv() {
            self.received.take(updates);
        }
        Ok(())
    }
}

//! Whom an object reaches: proxies that hold a resource that was made from it. Found in the resources of one proxy of each class, since the others
//! of the class hold the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use xds::{Class, Connection, Connections, SyncStatus, TypeUrl, WatchInfo};

use crate::access::Access;

const TYPES: [TypeUrl; 5] =
    [TypeUrl::Listener, TypeUrl::Route, TypeUrl::Cluster, TypeUrl::Endpoints, TypeUrl::Extension];
/// For the reach of all objects. In a mesh without scopes every class holds everything, and counting takes longer than it is worth.
const BUDGET: Duration = Duration::from_millis(150);
/// Resources and proxies that are named.
const MAX_NAMED: usize = 100;

/// Proxies by object.
pub(super) struct Reach(HashMap<Arc<str>, usize>);

pub(super) struct ClassMembers {
    pub(super) class: Arc<dyn Class>,
    /// One of them, without metadata and watches.
    pub(super) sample: Connection,
    /// Name, and the worst state of its types.
    pub(super) proxies: Vec<(String, SyncStatus)>,
}

impl Reach {
    /// `None`: it would take too long.
    pub(super) fn measure(connections: &Connections) -> Option<Reach> {
        let started = Instant::now();
        let mut reached = HashMap::new();
        for members in classes(connections, &Access::All) {
            if started.elapsed() > BUDGET {
                return None;
            }
            let mut objects: HashSet<Arc<str>> = HashSet::new();
            for kind in TYPES {
                let all = members.class.since(kind, 0);
                objects.extend(all.changed.iter().flat_map(|resource| resource.provenance.iter().cloned()));
            }
            for object in objects {
                *reached.entry(object).or_default() += members.proxies.len();
            }
        }
        Some(Reach(reached))
    }

    /// `object`: as `ObjectId` writes it.
    pub(super) fn of(&self, object: &str) -> usize {
        self.0.get(object).copied().unwrap_or_default()
    }

    /// One object in detail: proxies, how many have acknowledged everything, and the resources.
    pub(super) fn of_object(connections: &Connections, object: &str, access: &Access) -> Value {
        let (mut proxies, mut reached_classes) = (Vec::new(), 0);
        let mut resources: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for members in classes(connections, access) {
            let mut holds = false;
            for kind in TYPES {
                let all = members.class.since(kind, 0);
                let made = all.changed.iter().filter(|it| it.provenance.iter().any(|from| **from == *object));
                for resource in made {
                    holds = true;
                    *resources.entry((kind.short(), resource.name.to_string())).or_default() += members.proxies.len();
                }
            }
            if holds {
                reached_classes += 1;
                proxies.extend(members.proxies);
            }
        }
        let count = |status| proxies.iter().filter(|(_, it)| *it == status).count();
        let (acknowledged, waiting, rejected) =
            (count(SyncStatus::Synced), count(SyncStatus::Stale), count(SyncStatus::Error));
        let total = proxies.len();
        proxies.sort_by(|a, b| (a.1 == SyncStatus::Synced, &a.0).cmp(&(b.1 == SyncStatus::Synced, &b.0)));
        json!({
            "proxies": total,
            "classes": reached_classes,
            "acknowledged": acknowledged,
            "waiting": waiting,
            "rejected": rejected,
            "named": proxies.iter().take(MAX_NAMED).map(|(name, status)| json!([name, *status as u8])).collect::<Vec<_>>(),
            "resourceCount": resources.len(),
            "resources": resources.iter().take(MAX_NAMED).map(|((kind, name), proxies)| json!([kind, name, proxies])).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn classes(connections: &Connections, access: &Access) -> Vec<ClassMembers> {
    let mut classes: BTreeMap<u64, ClassMembers> = BTreeMap::new();
    connections.for_each_watched(|connection, watched| {
        let Some(number) = views::class_number(&*connection.class) else { return };
        if !access.sees(&connection.proxy.namespace) {
            return;
        }
        let members = classes.entry(number).or_insert_with(|| ClassMembers {
            class: connection.class.clone(),
            sample: connection.clone(),
            proxies: Vec::new(),
        });
        members.proxies.push((connection.proxy.id.clone(), overall(watched)));
    });
    classes.into_values().collect()
}

/// The worst of its types.
pub(super) fn overall(watched: &[WatchInfo]) -> SyncStatus {
    let has = |status| watched.iter().any(|watch| watch.status() == status);
    [SyncStatus::Error, SyncStatus::Stale].into_iter().find(|status| has(*status)).unwrap_or(SyncStatus::Synced)
}

//! The table of open streams, as the debug pages and `meltemi proxies` show it. Streams write, anyone reads.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{Class, Notifier, ProxyInfo, SyncStatus, Variant, WatchInfo, protocol::watches::Watches};

#[derive(Default)]
pub struct Connections {
    table: Mutex<Table>,
    changes: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// Streams opened since the start: the counter of connection ids.
    opened: u64,
    live: BTreeMap<u64, Arc<StreamEntry>>,
}

/// One open stream.
#[derive(Clone)]
pub struct Connection {
    /// `<pod.namespace>-<counter>`.
    pub id: String,
    pub node_id: String,
    pub proxy: Arc<ProxyInfo>,
    /// The node's metadata: an encoded google.protobuf.Struct.
    pub metadata: Bytes,
    pub connected_at: SystemTime,
    pub address: SocketAddr,
    /// Its authenticated SPIFFE ID. `None`: the port has no authentication.
    pub caller: Option<Arc<str>>,
    pub variant: Variant,
    /// Answers what the proxy should hold.
    pub class: Arc<dyn Class>,
    /// In push order.
    pub watched: Vec<WatchInfo>,
}

impl Connections {
    pub fn new() -> Arc<Connections> {
        Arc::new(Connections::default())
    }

    pub fn len(&self) -> usize {
        self.table().live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number that changes with every request of a proxy, thus every ACK and NACK, and with every connect and disconnect.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Called when what a snapshot shows has changed.
    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// In the order in which they connected.
    pub fn snapshot(&self) -> Vec<Connection> {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        live.iter().map(|entry| entry.snapshot()).collect()
    }

    /// The newest stream of a proxy, by `pod.namespace` or by connection id.
    pub fn find(&self, proxy: &str) -> Option<Connection> {
        let entry = self
            .table()
            .live
            .values()
            .rev()
            .find(|e| e.connection.proxy.id == proxy || e.connection.id == proxy)
            .cloned();
        entry.map(|entry| entry.snapshot())
    }

    /// The first stream that matches, in the order in which they connected. `matches` sees no watches.
    pub fn first(&self, matches: impl Fn(&Connection) -> bool) -> Option<Connection> {
        let entry = self.table().live.values().find(|entry| matches(&entry.connection)).cloned();
        entry.map(|entry| entry.snapshot())
    }

    /// Visits all streams in the order in which they connected, without watches, which are costly to copy.
    pub fn for_each(&self, visit: impl FnMut(&Connection)) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        live.iter().map(|entry| &entry.connection).for_each(visit);
    }

    /// Visits all streams in the order in which they connected, with the state of the types that each watches.
    pub fn for_each_watched(&self, mut visit: impl FnMut(&Connection, &[WatchInfo])) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        let (now, wall_clock) = (Instant::now().into_std(), SystemTime::now());
        let mut watched = Vec::new();
        for entry in live {
            watched.extend(entry.watches().iter().map(|watch| watch.info(now, wall_clock)));
            visit(&entry.connection, &watched);
            watched.clear();
        }
    }

    /// Asks a stream to end. Returns whether there is one with this id.
    pub fn request_end(&self, id: &str) -> bool {
        let entry = self.table().live.values().find(|entry| entry.connection.id == id).cloned();
        entry.inspect(|entry| entry.notifier.request_end()).is_some()
    }

    /// Counts streams, watched types, subscribed names and remembered nonces. Visits all streams.
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        let mut counts = (live.len(), 0, 0, 0);
        let mut sets = HashSet::new();
        for entry in live {
            for watched in entry.watch_infos().iter() {
                counts.1 += 1;
                // Equal sets share memory.
                if sets.insert(watched.names.address()) {
                    counts.2 += watched.names.len();
                }
                counts.3 += usize::from(watched.sent.is_some()) + usize::from(watched.acked.is_some());
            }
        }
        counts
    }

    /// The age of the oldest response that was neither ACKed nor NACKed. Visits all streams.
    pub(crate) fn oldest_unacked(&self) -> Duration {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        let now = SystemTime::now();
        let age = |watched: &WatchInfo| {
            let sent = watched.sent.as_ref().filter(|_| watched.status() == SyncStatus::Stale)?;
            now.duration_since(sent.at).ok()
        };
        live.iter().filter_map(|entry| entry.watch_infos().iter().filter_map(age).max()).max().unwrap_or_default()
    }

    /// Adds a stream, until the registration is dropped. Sets `connection.id`. `notifier`: by which the stream is asked to end.
    pub(crate) fn add(self: &Arc<Self>, mut connection: Connection, notifier: Arc<Notifier>) -> Registration {
        let mut table = self.table();
        table.opened += 1;
        let key = table.opened;
        connection.id = format!("{}-{key}", connection.proxy.id);
        let entry = Arc::new(StreamEntry { connection, watches: Mutex::default(), notifier });
        table.live.insert(key, entry.clone());
        self.count_change();
        Registration { connections: self.clone(), key, entry }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct StreamEntry {
    /// Locked by the task of the stream while it works.
    watches: Mutex<Watches>,
    /// Without watches.
    connection: Connection,
    notifier: Arc<Notifier>,
}

impl StreamEntry {
    fn snapshot(&self) -> Connection {
        Connection { watched: self.watch_infos(), ..self.connection.clone() }
    }

    fn watch_infos(&self) -> Vec<WatchInfo> {
        let (now, wall_clock) = (Instant::now().into_std(), SystemTime::now());
        self.watches().iter().map(|watch| watch.info(now, wall_clock)).collect()
    }

    // After a panic the stream ends, and its entry with it.
    pub(crate) fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream in the table, until it is dropped.
pub(crate) struct Registration {
    connections: Arc<Connections>,
    key: u64,
    entry: Arc<StreamEntry>,
}

impl Registration {
    pub(crate) fn id(&self) -> &str {
        &self.entry.connection.id
    }

    pub(crate) fn entry(&self) -> Arc<StreamEntry> {
        self.entry.clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.table().live.remove(&self.key);
        self.connections.count_change();
    }
}

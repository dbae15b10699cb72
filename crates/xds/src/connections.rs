//! The table of live streams, as the debug pages and `meltemi proxies` show it. Decides nothing; streams write, anyone
//! reads.

use std::{
    collections::{BTreeMap, HashSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};

use crate::{Bell, Class, Names, ProxyInfo, Seq, TypeUrl, likeness::Likeness, watch::Watch, watches::Watches};

#[derive(Default)]
pub struct Connections {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Streams opened since the start: the last part of a connection id.
    opened: u64,
    live: BTreeMap<u64, Arc<Entry>>,
}

/// One live stream.
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
    /// The SPIFFE name that it has shown. `None`: nobody asked.
    pub caller: Option<Arc<str>>,
    pub variant: Variant,
    /// What the proxy holds can be asked of its class.
    pub class: Arc<dyn Class>,
    /// In push order.
    pub watched: Vec<Watched>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    Sotw,
    Delta,
}

/// One type on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    pub kind: TypeUrl,
    pub wildcard: bool,
    /// Names asked for one by one.
    pub names: Names,
    /// The last response. `None`: nothing was sent yet.
    pub sent: Option<SentInfo>,
    /// Nothing had to be sent: the proxy came with the versions that there are.
    pub resumed: bool,
    /// The proxy holds everything that concerns it up to here. 0: nothing yet.
    pub position: Seq,
    /// The nonce of the last accepted response. `None`: nothing was accepted yet.
    pub acked: Option<Arc<str>>,
    /// Why the last response was refused. `None`: it was not; kept until the next ACK.
    pub last_error: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentInfo {
    pub nonce: Arc<str>,
    pub version: Seq,
    pub at: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    NotSent,
    /// Sent, and not answered yet.
    Stale,
    /// The proxy accepted the last response, or came with all it needs.
    Synced,
    Error,
}

impl Watched {
    pub fn status(&self) -> Status {
        match (&self.sent, &self.last_error) {
            (None, _) if self.resumed => Status::Synced,
            (None, _) => Status::NotSent,
            (_, Some(_)) => Status::Error,
            (Some(sent), None) if self.acked.as_ref() == Some(&sent.nonce) => Status::Synced,
            _ => Status::Stale,
        }
    }
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

    /// In the order in which they connected.
    pub fn snapshot(&self) -> Vec<Connection> {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        live.iter().map(|entry| entry.connection()).collect()
    }

    /// The newest stream of a proxy, by `pod.namespace` or by connection id.
    pub fn find(&self, proxy: &str) -> Option<Connection> {
        let entry =
            self.table().live.values().rev().find(|e| e.about.proxy.id == proxy || e.about.id == proxy).cloned();
        entry.map(|entry| entry.connection())
    }

    /// The first stream that fits, in the order in which they connected. Metadata is not there to be looked at.
    pub fn first(&self, fits: impl Fn(&Connection) -> bool) -> Option<Connection> {
        let entry = self.table().live.values().find(|entry| fits(&entry.about)).cloned();
        entry.map(|entry| entry.connection())
    }

    /// Looks at all streams in the order in which they connected, without metadata and watches, which are costly to copy.
    pub fn for_each(&self, look: impl FnMut(&Connection)) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        live.iter().map(|entry| &entry.about).for_each(look);
    }

    /// Asks a stream to end. Answers whether there is one of this id.
    pub fn end(&self, id: &str) -> bool {
        let entry = self.table().live.values().find(|entry| entry.about.id == id).cloned();
        entry.inspect(|entry| entry.news.end()).is_some()
    }

    /// Streams, types that they watch, names that they ask for, and nonces that are remembered. Looks at all streams.
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        let mut counts = (live.len(), 0, 0, 0);
        let mut sets = HashSet::new();
        for entry in live {
            for watched in entry.watched().iter() {
                counts.1 += 1;
                // Equal sets are one in memory.
                if sets.insert(watched.names.address()) {
                    counts.2 += watched.names.len();
                }
                counts.3 += usize::from(watched.sent.is_some()) + usize::from(watched.acked.is_some());
            }
        }
        counts
    }

    /// How long ago the oldest response was sent that nobody has answered. Looks at all streams.
    pub(crate) fn oldest_unanswered(&self) -> Duration {
        let live: Vec<_> = self.table().live.values().cloned().collect();
        let now = SystemTime::now();
        let age = |watched: &Watched| {
            let sent = watched.sent.as_ref().filter(|_| watched.status() == Status::Stale)?;
            now.duration_since(sent.at).ok()
        };
        live.iter().filter_map(|entry| entry.watched().iter().filter_map(age).max()).max().unwrap_or_default()
    }

    /// Enters a stream; it leaves the table when the answer is dropped. `arrival.id` gets its counter here. `news`: by which it is told to end.
    pub(crate) fn add(self: &Arc<Self>, mut arrival: Connection, news: Arc<Bell>) -> Listed {
        let metadata = Likeness::of_node(&std::mem::take(&mut arrival.metadata));
        let mut table = self.table();
        table.opened += 1;
        let key = table.opened;
        arrival.id = format!("{}-{key}", arrival.proxy.id);
        let entry = Arc::new(Entry { about: arrival, metadata, watches: Mutex::default(), news });
        table.live.insert(key, entry.clone());
        Listed { connections: self.clone(), key, entry }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In this order: the task of a stream, with every push, uses what comes first.
#[repr(C)]
pub(crate) struct Entry {
    /// The stream's task has it while it works.
    watches: Mutex<Watches>,
    /// Without metadata, of which nodes have much in common.
    about: Connection,
    metadata: Likeness,
    news: Arc<Bell>,
}

impl Entry {
    fn connection(&self) -> Connection {
        let mut metadata = BytesMut::new();
        self.metadata.write(0, usize::MAX, &mut metadata);
        Connection { watched: self.watched(), metadata: metadata.freeze(), ..self.about.clone() }
    }

    fn watched(&self) -> Vec<Watched> {
        self.watches().iter().map(Watch::shown).collect()
    }

    // The task of a stream that panics ends, and its entry with it.
    pub(crate) fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's place in the table.
pub(crate) struct Listed {
    connections: Arc<Connections>,
    key: u64,
    entry: Arc<Entry>,
}

impl Listed {
    pub(crate) fn id(&self) -> &str {
        &self.entry.about.id
    }

    pub(crate) fn entry(&self) -> Arc<Entry> {
        self.entry.clone()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.connections.table().live.remove(&self.key);
    }
}

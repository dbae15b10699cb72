//! The classes that each proxy was in, and since when. Proxies that have disconnected stay as long as anything is known of their last class.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Proxy, ProxyKind};
use views::{ClassMove, LayerKey};
use xds::Seq;

/// Proxies that have disconnected and are known at most: their names are what they say of themselves.
const MAX_PROXIES: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct PastProxies(BTreeMap<Arc<str>, PastProxy>);

#[derive(Debug)]
pub(crate) struct PastProxy {
    pub(crate) namespace: Arc<str>,
    pub(crate) kind: ProxyKind,
    /// The newest is the last.
    pub(crate) stays: Vec<ClassStay>,
}

/// In a class since a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClassStay {
    pub(crate) since: Seq,
    pub(crate) layers: [LayerKey; 3],
}

impl PastProxy {
    /// `None`: it was not connected yet.
    pub(crate) fn at(&self, seq: Seq) -> Option<&ClassStay> {
        self.stays.iter().rev().find(|stay| stay.since <= seq)
    }

    fn memory_bytes(&self) -> usize {
        /// With the entry of the map and its name.
        const ENTRY: usize = 120;
        ENTRY + self.stays.capacity() * size_of::<ClassStay>()
    }
}

impl PastProxies {
    pub(crate) fn get(&self, id: &str) -> Option<&PastProxy> {
        self.0.get(id)
    }

    pub(crate) fn add(&mut self, ClassMove { proxy, layers, since, overtaken }: &ClassMove) {
        let known = self.0.entry(proxy.id.clone()).or_insert_with(|| PastProxy::new(proxy));
        if known.namespace != proxy.namespace || known.kind != proxy.kind {
            // Another proxy of this name.
            *known = PastProxy::new(proxy);
        }
        if *overtaken {
            known.stays.pop_if(|stay| stay.since + 1 >= *since);
        }
        let stay = ClassStay { since: *since, layers: *layers };
        if known.stays.last().is_some_and(|last| last.layers == stay.layers) {
            return;
        }
        known.stays.retain(|other| other.since != *since);
        let at = known.stays.partition_point(|other| other.since < *since);
        known.stays.insert(at, stay);
    }

    /// Forgets what was before `begin`, and proxies of whose layers nothing is known.
    pub(crate) fn trim(&mut self, begin: Seq, is_known: impl Fn(LayerKey) -> bool) {
        for proxy in self.0.values_mut() {
            let over = proxy.stays.iter().skip(1).take_while(|next| next.since <= begin).count();
            proxy.stays.drain(..over);
        }
        let has_layers =
            |proxy: &PastProxy| proxy.stays.iter().any(|stay| stay.layers.iter().all(|key| is_known(*key)));
        self.0.retain(|_, proxy| has_layers(proxy));
        if self.0.len() > MAX_PROXIES {
            let mut ends: Vec<Seq> = self.0.values().filter_map(|proxy| Some(proxy.stays.last()?.since)).collect();
            let surplus = self.0.len() - MAX_PROXIES;
            let (_, limit, _) = ends.select_nth_unstable(surplus);
            let limit = *limit;
            self.0.retain(|_, proxy| proxy.stays.last().is_some_and(|stay| stay.since >= limit));
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.values().map(PastProxy::memory_bytes).sum()
    }
}

impl PastProxy {
    fn new(proxy: &Proxy) -> PastProxy {
        PastProxy { namespace: proxy.namespace.clone(), kind: proxy.kind, stays: Vec::new() }
    }
}

//! Layers of one kind, by key. Each is refreshed once per round however many classes share it. Classes refer to a layer by id, because keys
//! are large.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use imbl::HashMap;
use model::{Placement, ProxyFacts, Scope};

use crate::layer::{BuildContext, Layer, LayerKind, PlacementChange, Refresh, RefreshStamp};

/// Identifies a layer within its cache.
pub(crate) type LayerId = u64;

#[derive(Clone)]
pub(crate) struct LayerCache<K> {
    ids: HashMap<K, LayerId>,
    layers: HashMap<LayerId, LayerEntry>,
    /// The id of the next layer.
    next: LayerId,
}

#[derive(Clone)]
pub(crate) struct LayerEntry {
    pub(crate) layer: Arc<Layer>,
    /// Of the proxy that the layer was last built for.
    pub(crate) facts: Arc<ProxyFacts>,
    /// The round in which the layer was last refreshed.
    refreshed_round: u64,
}

impl<K> Default for LayerCache<K> {
    fn default() -> Self {
        Self { ids: HashMap::new(), layers: HashMap::new(), next: 0 }
    }
}

impl<K: Hash + Eq + Clone> LayerCache<K> {
    pub(crate) fn get_or_build<P: LayerKind>(
        &mut self,
        key: K,
        context: &mut BuildContext<'_>,
        placement: &Placement,
        stamp: RefreshStamp,
    ) -> LayerId {
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let layer = Arc::new(Layer::new::<P>(context, placement, stamp));
        self.insert(key, layer, placement, stamp)
    }

    /// A layer that was built for this placement.
    pub(crate) fn insert(&mut self, key: K, layer: Arc<Layer>, placement: &Placement, stamp: RefreshStamp) -> LayerId {
        let id = self.next;
        self.next += 1;
        let entry = LayerEntry { layer, facts: placement.facts.clone(), refreshed_round: stamp.round };
        self.layers.insert(id, entry);
        self.ids.insert(key, id);
        id
    }

    /// Refreshes a layer, at most once per round. An unchanged layer keeps its address. `scope_before`: the previous scope of the proxy
    /// that the layer was built for.
    pub(crate) fn refresh<P: LayerKind>(
        &mut self,
        id: LayerId,
        context: &mut BuildContext<'_>,
        scope_before: impl FnOnce(&ProxyFacts) -> Arc<Scope>,
        now: &Placement,
        Refresh { delta, stamp, .. }: Refresh<'_>,
    ) {
        if self.entry(id).refreshed_round == stamp.round {
            return;
        }
        let entry = self.layers.get_mut(&id).expect("a layer is dropped only when no class uses it");
        let before = Placement { scope: scope_before(&entry.facts), facts: entry.facts.clone() };
        if let Some(next) = entry.layer.next::<P>(context, &PlacementChange { delta, before: &before, now }, stamp) {
            entry.layer = Arc::new(next);
        }
        (entry.facts, entry.refreshed_round) = (now.facts.clone(), stamp.round);
    }

    pub(crate) fn find(&self, key: &K) -> Option<LayerId> {
        self.ids.get(key).copied()
    }

    pub(crate) fn entry(&self, id: LayerId) -> &LayerEntry {
        &self.layers[&id]
    }

    /// All layers. Shared with the cache.
    pub(crate) fn entries(&self) -> HashMap<LayerId, LayerEntry> {
        self.layers.clone()
    }

    /// Drops the layers that no class uses.
    pub(crate) fn retain(&mut self, in_use: &HashSet<LayerId>) {
        self.ids.retain(|_, id| in_use.contains(id));
        self.layers.retain(|id, _| in_use.contains(id));
    }

    /// The number of resource names in all layers.
    pub(crate) fn name_count(&self) -> usize {
        let tables = self.layers.values().flat_map(|entry| entry.layer.tables());
        tables.map(|(_, table)| table.len()).sum()
    }
}

//! Layers by key: each is refreshed once, whoever shares it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use model::{Delta, Placement};

use crate::layer::{Changed, Layer, Making, Moment, Part};

pub(crate) struct Shelf<K> {
    layers: HashMap<K, Kept>,
}

struct Kept {
    layer: Arc<Layer>,
    /// The place that it was made for.
    placement: Placement,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { layers: HashMap::new() }
    }
}

impl<K: Hash + Eq + Clone> Shelf<K> {
    pub(crate) fn get_or_make<P: Part>(
        &mut self,
        key: &K,
        making: &mut Making<'_>,
        placement: &Placement,
        moment: Moment,
    ) -> Arc<Layer> {
        let make =
            || Kept { layer: Arc::new(Layer::new::<P>(making, placement, moment)), placement: placement.clone() };
        self.layers.entry(key.clone()).or_insert_with(make).layer.clone()
    }

    /// Names in all layers.
    pub(crate) fn names(&self) -> usize {
        let tables = self.layers.values().flat_map(|kept| kept.layer.tables());
        tables.map(|(_, table)| table.len()).sum()
    }

    /// Takes this key's layer over as it is.
    pub(crate) fn keep(&mut self, old: &mut Self, key: &K) {
        if let Some(kept) = old.layers.remove(key) {
            self.layers.insert(key.clone(), kept);
        }
    }

    /// Takes this key's layer over from the shelf of the former mesh, refreshed. An unchanged one stays the same in memory.
    pub(crate) fn carry<P: Part>(
        &mut self,
        old: &mut Self,
        key: &K,
        making: &mut Making<'_>,
        placement: &Placement,
        delta: &Delta,
        moment: Moment,
    ) -> Arc<Layer> {
        if let Some(kept) = self.layers.get(key) {
            return kept.layer.clone();
        }
        let Some(Kept { layer, placement: before }) = old.layers.remove(key) else {
            return self.get_or_make::<P>(key, making, placement, moment);
        };
        let next = layer.next::<P>(making, &Changed { delta, before: &before, now: placement }, moment);
        let layer = next.map_or(layer, Arc::new);
        self.layers.insert(key.clone(), Kept { layer: layer.clone(), placement: placement.clone() });
        layer
    }
}

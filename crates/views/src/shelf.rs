//! Layers by key: each is refreshed once in a round, whoever shares it, and found without its key by who holds it.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use model::{Delta, Placement};

use crate::layer::{Changed, Layer, Making, Moment, Part};

/// Where a layer is.
pub(crate) type Place = u64;

pub(crate) struct Shelf<K> {
    places: HashMap<Arc<K>, Place>,
    layers: HashMap<Place, Kept>,
    /// The next place.
    next: Place,
}

pub(crate) struct Kept {
    pub(crate) layer: Arc<Layer>,
    /// The place in the mesh that it was last made for.
    pub(crate) placement: Arc<Placement>,
    /// The kind of client, as the stock knows it.
    pub(crate) client: usize,
    /// The round that it was last refreshed in.
    refreshed: u64,
    /// The round in which it was last asked whether a change concerns it, and the answer.
    concerned: (u64, bool),
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        Self { places: HashMap::new(), layers: HashMap::new(), next: 0 }
    }
}

impl<K: Hash + Eq> Shelf<K> {
    pub(crate) fn get_or_make<P: Part>(
        &mut self,
        key: &Arc<K>,
        making: &mut Making<'_>,
        placement: &Arc<Placement>,
        moment: Moment,
    ) -> Place {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.next;
        self.next += 1;
        let layer = Arc::new(Layer::new::<P>(making, placement, moment));
        let kept = Kept {
            layer,
            placement: placement.clone(),
            client: making.client,
            refreshed: moment.round,
            concerned: (moment.round, true),
        };
        self.places.insert(key.clone(), place);
        self.layers.insert(place, kept);
        place
    }

    /// The same, in a round of refreshing.
    pub(crate) fn carry<P: Part>(
        &mut self,
        key: &Arc<K>,
        making: &mut Making<'_>,
        placement: &Arc<Placement>,
        delta: &Delta,
        moment: Moment,
    ) -> Place {
        let place = self.get_or_make::<P>(key, making, placement, moment);
        self.kept_mut(place).client = making.client;
        self.refresh::<P>(place, making, placement, delta, moment);
        place
    }

    /// Unless it was in this round. An unchanged layer stays the same in memory.
    pub(crate) fn refresh<P: Part>(
        &mut self,
        place: Place,
        making: &mut Making<'_>,
        now: &Arc<Placement>,
        delta: &Delta,
        moment: Moment,
    ) {
        let kept = self.kept_mut(place);
        if kept.refreshed == moment.round {
            return;
        }
        let changed = Changed { delta, before: &kept.placement, now };
        if let Some(next) = kept.layer.next::<P>(making, &changed, moment) {
            kept.layer = Arc::new(next);
        }
        (kept.placement, kept.refreshed) = (now.clone(), moment.round);
    }

    /// Asks once in a round.
    pub(crate) fn is_concerned(&mut self, place: Place, round: u64, ask: impl FnOnce(&Placement) -> bool) -> bool {
        let kept = self.kept_mut(place);
        if kept.concerned.0 != round {
            kept.concerned = (round, ask(&kept.placement));
        }
        kept.concerned.1
    }

    pub(crate) fn kept(&self, place: Place) -> &Kept {
        &self.layers[&place]
    }

    fn kept_mut(&mut self, place: Place) -> &mut Kept {
        self.layers.get_mut(&place).expect("places are swept only when no class has them")
    }

    /// Drops the layers that nobody holds.
    pub(crate) fn sweep(&mut self, held: &HashSet<Place>) {
        self.places.retain(|_, place| held.contains(place));
        self.layers.retain(|place, _| held.contains(place));
    }

    /// Names in all layers.
    pub(crate) fn names(&self) -> usize {
        let tables = self.layers.values().flat_map(|kept| kept.layer.tables());
        tables.map(|(_, table)| table.len()).sum()
    }
}

//! Layers by key: each is refreshed once in a round, whoever shares it, and found without its key by who holds it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use model::{Placement, Scope, Standing};

use crate::layer::{Change, Changed, Layer, Making, Moment, Part};

/// Where a layer is.
pub(crate) type Place = u64;

pub(crate) struct Shelf<K> {
    places: HashMap<Print, Place>,
    secrets: [RandomState; 2],
    layers: HashMap<Place, Kept>,
    /// The next place.
    next: Place,
    _keys: PhantomData<fn(K)>,
}

/// Stands for a key, which is large. The hashes are secret: nobody outside can look for two keys that are taken for one.
type Print = [u64; 2];

/// What a key says of itself: to hash it at once costs a third of hashing its many small parts.
struct Told(Vec<u8>);

impl Hasher for Told {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("its bytes are hashed, not asked for a hash")
    }
}

pub(crate) struct Kept {
    pub(crate) layer: Arc<Layer>,
    /// Of the proxy that it was last made for.
    pub(crate) standing: Arc<Standing>,
    /// The round that it was last refreshed in.
    refreshed: u64,
}

impl<K> Default for Shelf<K> {
    fn default() -> Self {
        let secrets = [RandomState::new(), RandomState::new()];
        Self { places: HashMap::new(), secrets, layers: HashMap::new(), next: 0, _keys: PhantomData }
    }
}

impl<K: Hash> Shelf<K> {
    pub(crate) fn get_or_make<P: Part>(
        &mut self,
        key: &K,
        making: &mut Making<'_>,
        placement: &Placement,
        moment: Moment,
    ) -> Place {
        let print = self.print(key);
        *self.places.entry(print).or_insert_with(|| {
            let place = self.next;
            self.next += 1;
            let layer = Arc::new(Layer::new::<P>(making, placement, moment));
            let kept = Kept { layer, standing: placement.standing.clone(), refreshed: moment.round };
            self.layers.insert(place, kept);
            place
        })
    }

    /// Unless it was in this round. An unchanged layer stays the same in memory. `seen`: the scope until now of who it was made for.
    pub(crate) fn refresh<P: Part>(
        &mut self,
        place: Place,
        making: &mut Making<'_>,
        seen: impl FnOnce(&Standing) -> Arc<Scope>,
        now: &Placement,
        Change { delta, moment, .. }: Change<'_>,
    ) {
        let kept = self.layers.get_mut(&place).expect("places are swept only when no class has them");
        if kept.refreshed == moment.round {
            return;
        }
        let before = Placement { scope: seen(&kept.standing), standing: kept.standing.clone() };
        if let Some(next) = kept.layer.next::<P>(making, &Changed { delta, before: &before, now }, moment) {
            kept.layer = Arc::new(next);
        }
        (kept.standing, kept.refreshed) = (now.standing.clone(), moment.round);
    }

    pub(crate) fn place_of(&self, key: &K) -> Option<Place> {
        self.places.get(&self.print(key)).copied()
    }

    fn print(&self, key: &K) -> Print {
        let mut told = Told(Vec::with_capacity(2048));
        key.hash(&mut told);
        let Told(bytes) = told;
        self.secrets.each_ref().map(|secret| {
            let mut hash = secret.build_hasher();
            hash.write(&bytes);
            hash.finish()
        })
    }

    pub(crate) fn kept(&self, place: Place) -> &Kept {
        &self.layers[&place]
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

//! The published outbound layer. Classes that share it read it through one atomic pointer, because most changes affect the outbound layer
//! only: one swap then publishes the change to all of them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use model::{Delta, Mesh, Scope};
use xds::{Kinds, Seq};

use crate::dependencies::OwnLayersReach;
use crate::layer::Layer;

/// The shared pointer to the published outbound layer. It is swapped only if nothing else of its views changes: a stream must not observe
/// half of a change.
pub(crate) type SharedOutbound = Arc<ArcSwap<OutboundLayer>>;

#[derive(Debug)]
pub(crate) struct OutboundLayer {
    pub(crate) mesh: Arc<Mesh>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) layer: Arc<Layer>,
    /// The sequence at which the layer last changed.
    pub(crate) seq: Seq,
    /// The round in which this was published: unique among the values of one pointer.
    pub(crate) round: u64,
}

/// The outbound layer, and its pending update in this round.
#[derive(Clone)]
pub(crate) struct OutboundState {
    /// What the shared pointer holds once the effects of the engine are applied.
    pub(crate) published: Arc<OutboundLayer>,
    pub(crate) shared: SharedOutbound,
    /// The client id in the resource cache.
    pub(crate) client: usize,
    /// The last round in which it was checked whether the change affects this layer.
    pub(crate) checked_round: u64,
    /// `None`: no update is waiting to be published.
    pub(crate) update: Option<OutboundUpdate>,
}

/// The transition from one published outbound layer to the next.
#[derive(Clone)]
pub(crate) struct OutboundUpdate {
    pub(crate) before: Arc<OutboundLayer>,
    pub(crate) next: Arc<OutboundLayer>,
    pub(crate) own_layers: OwnLayersReach,
    /// Other layers changed too, so the classes need new views.
    pub(crate) needs_new_views: bool,
    /// The types that changed in the outbound layer.
    pub(crate) kinds: Kinds,
}

impl OutboundState {
    pub(crate) fn new(layer: OutboundLayer, client: usize) -> Self {
        let (checked_round, published) = (layer.round, Arc::new(layer));
        Self { shared: Arc::new(ArcSwap::new(published.clone())), published, client, checked_round, update: None }
    }

    /// Takes the update of this round. Returns whether it needs new views: those read another pointer, because a stream must not observe half
    /// of a change.
    pub(crate) fn publish(&mut self) -> bool {
        let Some(OutboundUpdate { next, needs_new_views, .. }) = self.update.take() else { return false };
        self.published = next;
        if needs_new_views {
            self.shared = Arc::new(ArcSwap::new(self.published.clone()));
        }
        needs_new_views
    }
}

impl OutboundUpdate {
    pub(crate) fn new(before: Arc<OutboundLayer>, next: Arc<OutboundLayer>, delta: &Delta) -> Self {
        let kinds = if Arc::ptr_eq(&before.layer, &next.layer) { Kinds::NONE } else { next.layer.changed_at(next.seq) };
        let own_layers = OwnLayersReach::new(delta, &before, &next);
        Self { own_layers, needs_new_views: false, kinds, before, next }
    }

    pub(crate) fn changes_layer(&self) -> bool {
        !Arc::ptr_eq(&self.before.layer, &self.next.layer)
    }
}

//! The resources of one class: its three layers, which other classes may share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::Guard;
use model::{Placement, ProxyFacts};
use xds::{Changes, ContentDigest, Resource, Seq, TypeUrl};

use crate::layer::{Layer, LayerKind, encode_unshared};
use crate::layer_kinds::{Inbound, Listeners};
use crate::outbound_layer::{OutboundLayer, SharedOutbound};
use crate::render;
use crate::table::{Answers, Table, cached_changes, evict_unused};

#[derive(Debug)]
pub(crate) struct View {
    outbound: SharedOutbound,
    /// Of one member, which represents all: the class key holds everything that translation reads.
    facts: Arc<ProxyFacts>,
    /// The listener and the inbound layer.
    own_layers: [Arc<Layer>; 2],
    /// The sequence at which the view was built.
    seq: Seq,
    /// Keyed by type, sequence, and round of the outbound layer.
    answers: Mutex<Answers<(TypeUrl, Seq, u64)>>,
}

/// A view with one version of the outbound layer.
pub(crate) struct ViewSnapshot<'a> {
    view: &'a View,
    outbound: Guard<Arc<OutboundLayer>>,
}

impl View {
    pub(crate) fn new(outbound: SharedOutbound, facts: Arc<ProxyFacts>, own_layers: [Arc<Layer>; 2], seq: Seq) -> Self {
        Self { outbound, facts, own_layers, seq, answers: Mutex::default() }
    }

    /// The next view of the class. It keeps its sequence if the layers are the same: no stream was notified of a newer one.
    pub(crate) fn next(
        &self,
        outbound: SharedOutbound,
        facts: Arc<ProxyFacts>,
        own_layers: [Arc<Layer>; 2],
        seq: Seq,
    ) -> Self {
        let seq = if self.has_own_layers(&own_layers) { self.seq } else { seq };
        Self::new(outbound, facts, own_layers, seq)
    }

    pub(crate) fn own_layers(&self) -> &[Arc<Layer>; 2] {
        &self.own_layers
    }

    /// Whether the view holds these layers, compared by address.
    pub(crate) fn has_own_layers(&self, own_layers: &[Arc<Layer>; 2]) -> bool {
        self.own_layers.iter().zip(own_layers).all(|(one, two)| Arc::ptr_eq(one, two))
    }

    pub(crate) fn snapshot(&self) -> ViewSnapshot<'_> {
        ViewSnapshot { view: self, outbound: self.outbound.load() }
    }

    /// Drops cached answers that no stream uses any more.
    pub(crate) fn evict_unused(&self) {
        evict_unused(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, table) in self.snapshot().tables() {
            table.evict_unused();
        }
    }
}

impl ViewSnapshot<'_> {
    pub(crate) fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let tables = || self.tables_of(kind);
        // Tombstones of one table are missing, so the answer must be a full one.
        let since = if tables().any(|table| since < table.compacted_at) { 0 } else { since };
        let changed = || tables().filter(|table| since == 0 || table.seq > since);
        // Usually at most one layer changed. Its answer is shared with the other classes of the layer.
        let mut first = changed();
        match (first.next(), first.next()) {
            (None, _) => {
                // A stream that got an empty answer has advanced to this sequence.
                let seq = tables().map(|table| table.seq).max().unwrap_or(self.view.seq.max(self.outbound.seq));
                Arc::new(Changes { seq, full: since == 0, ..Changes::default() })
            }
            (Some(only), None) => only.since(since),
            _ => {
                // Answers are inserted whole, so a panic leaves no half of one.
                let mut answers = self.view.answers.lock().unwrap_or_else(PoisonError::into_inner);
                let question = (kind, since, self.outbound.round);
                cached_changes(&mut answers, question, || merge(changed().map(|table| table.since(since))))
            }
        }
    }

    pub(crate) fn content_digest(&self, kind: TypeUrl) -> ContentDigest {
        let mut parts = self.tables_of(kind).peekable();
        // A stream that got an empty answer has advanced to this sequence.
        let nothing = || ContentDigest::default().at(self.view.seq.max(self.outbound.seq));
        if parts.peek().is_none() { nothing() } else { ContentDigest::sum(parts.map(|table| table.content_digest())) }
    }

    pub(crate) fn has_changes(&self, kind: TypeUrl, since: Seq) -> bool {
        since == 0 || self.tables_of(kind).any(|table| table.seq > since || since < table.compacted_at)
    }

    pub(crate) fn layers(&self) -> [&Arc<Layer>; 3] {
        let [listeners, inbound] = &self.view.own_layers;
        [&self.outbound.layer, listeners, inbound]
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.layers().into_iter().flat_map(|layer| layer.tables())
    }

    /// What identifies the content of an answer among those of one class.
    pub(crate) fn stamp(&self) -> (Seq, u64) {
        (self.view.seq, self.outbound.round)
    }

    /// Skips the listener and inbound layers for types that they never hold: they are apart in memory for each class, and most changes are
    /// in the shared outbound layer. This saves cache misses.
    pub(crate) fn tables_of(&self, kind: TypeUrl) -> impl Iterator<Item = &Arc<Table>> {
        let own = Listeners::KINDS.contains(kind) || Inbound::KINDS.contains(kind);
        let own_layers = if own { &self.view.own_layers[..] } else { &[] };
        std::iter::once(&self.outbound.layer).chain(own_layers).filter_map(move |layer| layer.table(kind))
    }

    pub(crate) fn holds(&self, kind: TypeUrl, name: &str) -> bool {
        self.find(kind, name).is_some()
    }

    pub(crate) fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if let Some(resource) = self.find(kind, name) {
            return Some(resource.clone());
        }
        // The stream goes on without a resource whose translation panics.
        let made = catch_unwind(AssertUnwindSafe(|| match kind {
            TypeUrl::Endpoints => Some(render::render_endpoints(&self.outbound.mesh, &self.placement(), name)),
            TypeUrl::Route => Some(render::render_route(&self.outbound.mesh, &self.placement(), name)),
            _ => None,
        }));
        Some(Arc::new(encode_unshared(&made.ok()??)))
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement { scope: self.outbound.scope.clone(), facts: self.view.facts.clone() }
    }

    /// In its tables, whether it is held or not.
    pub(crate) fn find(&self, kind: TypeUrl, name: &str) -> Option<&Arc<Resource>> {
        self.tables_of(kind).find_map(|table| table.get(name))
    }
}

/// Layers have no resource name in common.
fn merge(parts: impl Iterator<Item = Arc<Changes>>) -> Changes {
    let mut all = Changes::default();
    for part in parts {
        all.seq = all.seq.max(part.seq);
        all.changed.extend(part.changed.iter().cloned());
        all.removed.extend(part.removed.iter().cloned());
        all.full = part.full;
        all.changed_at = all.changed_at.into_iter().chain(part.changed_at).min();
        all.parts.push(part);
    }
    all
}

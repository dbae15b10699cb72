//! What one class of proxies holds: its three layers, which other classes may share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use model::{Mesh, Placement};
use xds::{Changes, Resource, Seq, TypeUrl};

use crate::layer::{Layer, encoded};
use crate::rendered;
use crate::table::{Table, remembered};

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) mesh: Arc<Mesh>,
    /// One member stands for all: the class key holds everything that answers depend on.
    pub(crate) placement: Arc<Placement>,
    pub(crate) layers: [Arc<Layer>; 3],
    /// The sequence at which it was made.
    seq: Seq,
    answers: Mutex<HashMap<(TypeUrl, Seq), Weak<Changes>>>,
}

impl View {
    pub(crate) fn new(mesh: &Arc<Mesh>, placement: Arc<Placement>, layers: [Arc<Layer>; 3], seq: Seq) -> Self {
        Self { mesh: mesh.clone(), placement, layers, seq, answers: Mutex::default() }
    }

    /// The same class in a later mesh. Where nothing changed, nobody was told of the sequence either.
    pub(crate) fn next(&self, mesh: &Arc<Mesh>, placement: Arc<Placement>, layers: [Arc<Layer>; 3], seq: Seq) -> Self {
        let next = Self::new(mesh, placement, layers, seq);
        if next.equals(self) { Self { seq: self.seq, ..next } } else { next }
    }

    pub(crate) fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let tables: Vec<_> = self.layers.iter().filter_map(|layer| layer.table(kind)).collect();
        // Half a history is none.
        let since = if tables.iter().any(|table| since < table.forgotten) { 0 } else { since };
        let news = || tables.iter().filter(|table| since == 0 || table.seq > since);
        // Mostly one layer has news, which its other classes share, or none.
        match news().take(2).collect::<Vec<_>>()[..] {
            [] => {
                // A stream that was told that there is nothing has come this far.
                let seq = tables.iter().map(|table| table.seq).max().unwrap_or(self.seq);
                Arc::new(Changes { seq, full: since == 0, ..Changes::default() })
            }
            [only] => only.since(since),
            _ => {
                // A panic while holding it cannot leave a half answer: answers are inserted whole.
                let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
                remembered(&mut answers, (kind, since), || merged(news().map(|table| table.since(since))))
            }
        }
    }

    pub(crate) fn has_news(&self, kind: TypeUrl, since: Seq) -> bool {
        let mut tables = self.layers.iter().filter_map(|layer| layer.table(kind));
        since == 0 || tables.any(|table| table.seq > since || since < table.forgotten)
    }

    /// The same answers, in memory that is shared.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.layers.iter().zip(&other.layers).all(|(one, two)| Arc::ptr_eq(one, two))
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.layers.iter().flat_map(|layer| layer.tables())
    }

    pub(crate) fn holds(&self, kind: TypeUrl, name: &str) -> bool {
        self.held(kind, name).is_some()
    }

    pub(crate) fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if let Some(held) = self.held(kind, name) {
            return Some(held.clone());
        }
        let made = match kind {
            TypeUrl::Endpoints => rendered::endpoint(&self.mesh, &self.placement, name),
            TypeUrl::Route => rendered::route(&self.mesh, &self.placement, name),
            _ => return None,
        };
        Some(Arc::new(encoded(made)))
    }

    fn held(&self, kind: TypeUrl, name: &str) -> Option<&Arc<Resource>> {
        self.layers.iter().find_map(|layer| layer.table(kind)?.get(name))
    }
}

/// Layers have no name in common.
fn merged(parts: impl Iterator<Item = Arc<Changes>>) -> Changes {
    let mut all = Changes::default();
    for part in parts {
        all.seq = all.seq.max(part.seq);
        all.changed.extend(part.changed.iter().cloned());
        all.removed.extend(part.removed.iter().cloned());
        all.full = part.full;
        all.began = all.began.into_iter().chain(part.began).min();
        all.parts.push(part);
    }
    all
}

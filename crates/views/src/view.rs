//! What one class of proxies holds: its three layers, which other classes may share.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::Guard;
use model::{Placement, Standing};
use xds::{Changes, Resource, Seq, Tally, TypeUrl};

use crate::ground::{Cell, Ground};
use crate::layer::{Layer, Part, encoded};
use crate::parts::{Inbound, Listeners};
use crate::rendered;
use crate::table::{Answers, Table, forget, remembered};

#[derive(Debug)]
pub(crate) struct View {
    ground: Cell,
    /// One member stands for all: the class key holds everything that answers depend on.
    standing: Arc<Standing>,
    /// Besides the outbound one.
    others: [Arc<Layer>; 2],
    /// The sequence at which it was made.
    seq: Seq,
    /// By type, sequence and round of the ground.
    answers: Mutex<Answers<(TypeUrl, Seq, u64)>>,
}

/// A view at one moment.
pub(crate) struct Sight<'a> {
    view: &'a View,
    ground: Guard<Arc<Ground>>,
}

impl View {
    pub(crate) fn new(ground: Cell, standing: Arc<Standing>, others: [Arc<Layer>; 2], seq: Seq) -> Self {
        Self { ground, standing, others, seq, answers: Mutex::default() }
    }

    /// The same class later. Where nothing changed, nobody was told of the sequence either.
    pub(crate) fn next(&self, ground: Cell, standing: Arc<Standing>, others: [Arc<Layer>; 2], seq: Seq) -> Self {
        let seq = if self.holds_others(&others) { self.seq } else { seq };
        Self::new(ground, standing, others, seq)
    }

    /// These layers, in memory that is shared.
    pub(crate) fn holds_others(&self, others: &[Arc<Layer>; 2]) -> bool {
        self.others.iter().zip(others).all(|(one, two)| Arc::ptr_eq(one, two))
    }

    pub(crate) fn now(&self) -> Sight<'_> {
        Sight { view: self, ground: self.ground.load() }
    }

    /// Drops answers that nobody is being told any more.
    pub(crate) fn rest(&self) {
        forget(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, table) in self.now().tables() {
            table.rest();
        }
    }
}

impl Sight<'_> {
    pub(crate) fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let tables = || self.tables_of(kind);
        // Half a history is none.
        let since = if tables().any(|table| since < table.forgotten) { 0 } else { since };
        let news = || tables().filter(|table| since == 0 || table.seq > since);
        // Mostly one layer has news, which its other classes share, or none.
        let mut first = news();
        match (first.next(), first.next()) {
            (None, _) => {
                // A stream that was told that there is nothing has come this far.
                let seq = tables().map(|table| table.seq).max().unwrap_or(self.view.seq.max(self.ground.seq));
                Arc::new(Changes { seq, full: since == 0, ..Changes::default() })
            }
            (Some(only), None) => only.since(since),
            _ => {
                // A panic while holding it cannot leave a half answer: answers are inserted whole.
                let mut answers = self.view.answers.lock().unwrap_or_else(PoisonError::into_inner);
                let question = (kind, since, self.ground.round);
                remembered(&mut answers, question, || merged(news().map(|table| table.since(since))))
            }
        }
    }

    pub(crate) fn tally(&self, kind: TypeUrl) -> Tally {
        let mut parts = self.tables_of(kind).peekable();
        // A stream that was told that there is nothing has come this far.
        let nothing = || Tally::default().at(self.view.seq.max(self.ground.seq));
        if parts.peek().is_none() { nothing() } else { Tally::sum(parts.map(|table| table.tally())) }
    }

    pub(crate) fn has_news(&self, kind: TypeUrl, since: Seq) -> bool {
        since == 0 || self.tables_of(kind).any(|table| table.seq > since || since < table.forgotten)
    }

    pub(crate) fn layers(&self) -> [&Arc<Layer>; 3] {
        let [listeners, inbound] = &self.view.others;
        [&self.ground.layer, listeners, inbound]
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (TypeUrl, &Arc<Table>)> {
        self.layers().into_iter().flat_map(|layer| layer.tables())
    }

    /// Those of a class alone are not looked at where they hold nothing of the type: they lie apart for each class, and mostly a change
    /// is in what all share.
    fn tables_of(&self, kind: TypeUrl) -> impl Iterator<Item = &Arc<Table>> {
        let own = Listeners::TYPES.contains(&kind) || Inbound::TYPES.contains(&kind);
        let others = if own { &self.view.others[..] } else { &[] };
        std::iter::once(&self.ground.layer).chain(others).filter_map(move |layer| layer.table(kind))
    }

    pub(crate) fn holds(&self, kind: TypeUrl, name: &str) -> bool {
        self.held(kind, name).is_some()
    }

    pub(crate) fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        if let Some(held) = self.held(kind, name) {
            return Some(held.clone());
        }
        let made = match kind {
            TypeUrl::Endpoints => rendered::endpoint(&self.ground.mesh, &self.placement(), name),
            TypeUrl::Route => rendered::route(&self.ground.mesh, &self.placement(), name),
            _ => return None,
        };
        Some(Arc::new(encoded(made)))
    }

    pub(crate) fn placement(&self) -> Placement {
        Placement { scope: self.ground.scope.clone(), standing: self.view.standing.clone() }
    }

    fn held(&self, kind: TypeUrl, name: &str) -> Option<&Arc<Resource>> {
        self.tables_of(kind).find_map(|table| table.get(name))
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

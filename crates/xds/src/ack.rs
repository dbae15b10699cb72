//! The answers of a proxy to the responses of one type: which is outstanding, up to where it agreed, what it refused.
//! Pure.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

use crate::{Changes, Resource, SentInfo, Seq, owed::Owed};

#[derive(Default)]
pub(crate) struct Ack {
    position: Seq,
    refused: Option<Seq>,
    last: Option<Sent>,
    /// On the heap: mostly there is none.
    open: Option<Box<Open>>,
    acked: Option<Arc<str>>,
    error: Option<Arc<str>>,
}

/// The last response.
pub(crate) struct Sent {
    pub(crate) nonce: Arc<str>,
    version: Seq,
    at: tokio::time::Instant,
}

impl Sent {
    /// As tables show it.
    pub(crate) fn shown(&self) -> SentInfo {
        let now = SystemTime::now();
        SentInfo {
            nonce: self.nonce.clone(),
            version: self.version,
            at: now.checked_sub(self.at.elapsed()).unwrap_or(now),
        }
    }
}

/// A response that has not been answered.
pub(crate) struct Open {
    /// What the proxy will have reached by accepting it. `None`: some names were answered out of turn.
    pub(crate) to: Option<Seq>,
    /// The content is of this sequence.
    pub(crate) as_of: Seq,
    /// What it was meant to settle.
    pub(crate) owed: Owed,
    pub(crate) content: Content,
    /// When the oldest change in it arrived. `None`: it answers a request.
    pub(crate) began: Option<Instant>,
    pub(crate) at: tokio::time::Instant,
    /// That it takes long was counted.
    pub(crate) overdue: bool,
}

/// The resources of a response.
#[derive(Clone)]
pub(crate) enum Content {
    /// All of an answer: other streams get the same.
    Shared(Arc<Changes>),
    Own(Vec<Arc<Resource>>),
}

impl Content {
    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        match self {
            Content::Shared(changes) => &changes.changed,
            Content::Own(resources) => resources,
        }
    }
}

/// What a request says of the last response.
pub(crate) enum Verdict {
    /// Nothing: it has no nonce.
    Silent,
    /// Its nonce is not that of the last response.
    Stale,
    /// Nothing new: the last response was answered before.
    Repeated,
    Accepted(Box<Open>),
    Refused(Box<Open>),
}

impl Ack {
    pub(crate) fn at(position: Seq) -> Ack {
        Ack { position, ..Ack::default() }
    }

    pub(crate) fn sent(&mut self, nonce: Arc<str>, version: Seq, open: Box<Open>) {
        self.last = Some(Sent { nonce, version, at: open.at });
        self.open = Some(open);
    }

    pub(crate) fn settle(&mut self, nonce: &str, error: Option<Arc<str>>) -> Verdict {
        if nonce.is_empty() {
            return Verdict::Silent;
        }
        let Some(last) = self.last.as_ref().filter(|last| *last.nonce == *nonce) else { return Verdict::Stale };
        // After a NACK a proxy goes on to use the nonce that it refused: that is no agreement.
        let Some(open) = self.open.take() else { return Verdict::Repeated };
        if error.is_some() {
            self.error = error;
            self.refused = Some(open.as_of);
            return Verdict::Refused(open);
        }
        self.acked = Some(last.nonce.clone());
        self.error = None;
        // Agreement to some names says nothing of what was refused before.
        if let Some(to) = open.to {
            self.refused = None;
            self.advance(to);
        }
        Verdict::Accepted(open)
    }

    /// Nothing that concerns the proxy happened up to here.
    pub(crate) fn advance(&mut self, to: Seq) {
        self.position = self.position.max(to);
    }

    /// The proxy holds everything up to here. 0: nothing yet.
    pub(crate) fn position(&self) -> Seq {
        self.position
    }

    /// The proxy refused what was there at this sequence. `None`: it refused nothing since it last accepted.
    pub(crate) fn refused(&self) -> Option<Seq> {
        self.refused
    }

    pub(crate) fn open(&self) -> Option<&Open> {
        self.open.as_deref()
    }

    pub(crate) fn open_mut(&mut self) -> Option<&mut Open> {
        self.open.as_deref_mut()
    }

    pub(crate) fn last(&self) -> Option<&Sent> {
        self.last.as_ref()
    }

    pub(crate) fn acked(&self) -> Option<&Arc<str>> {
        self.acked.as_ref()
    }

    pub(crate) fn error(&self) -> Option<&Arc<str>> {
        self.error.as_ref()
    }
}

/// Nonces of this process: a sequence behind an id of this start, so that one from before a restart never matches.
pub(crate) struct Nonces {
    boot: u32,
    next: AtomicU64,
}

impl Nonces {
    pub(crate) fn new() -> Nonces {
        let random = RandomState::new().build_hasher().finish();
        Nonces { boot: (random >> 32) as u32, next: AtomicU64::new(1) }
    }

    pub(crate) fn next(&self) -> Arc<str> {
        format!("{:08x}-{:x}", self.boot, self.next.fetch_add(1, Ordering::Relaxed)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ack: &mut Ack, nonce: &str, to: Option<Seq>) {
        let open = Open {
            to,
            as_of: to.unwrap_or(9),
            owed: Owed::default(),
            content: Content::Own(Vec::new()),
            began: None,
            at: tokio::time::Instant::now(),
            overdue: false,
        };
        ack.sent(nonce.into(), 1, Box::new(open));
    }

    fn error() -> Option<Arc<str>> {
        Some("no".into())
    }

    #[test]
    fn an_ack_moves_the_position() {
        let mut ack = Ack::default();
        sent(&mut ack, "a", Some(5));
        assert!(ack.open().is_some());
        assert!(matches!(ack.settle("a", None), Verdict::Accepted(_)));
        assert_eq!((ack.position(), ack.acked().map(|a| &**a)), (5, Some("a")));
        assert!(ack.open().is_none());
    }

    #[test]
    fn an_ack_out_of_turn_leaves_the_position() {
        let mut ack = Ack::at(3);
        sent(&mut ack, "a", None);
        assert!(matches!(ack.settle("a", None), Verdict::Accepted(_)));
        assert_eq!(ack.position(), 3);
    }

    #[test]
    fn a_nack_keeps_the_position_and_the_error_until_the_next_ack() {
        let mut ack = Ack::at(3);
        sent(&mut ack, "a", Some(5));
        assert!(matches!(ack.settle("a", error()), Verdict::Refused(_)));
        assert_eq!((ack.position(), ack.refused(), ack.error().map(|e| &**e)), (3, Some(5), Some("no")));
        sent(&mut ack, "b", Some(7));
        assert_eq!(ack.error().map(|e| &**e), Some("no"));
        assert!(matches!(ack.settle("b", None), Verdict::Accepted(_)));
        assert_eq!((ack.position(), ack.refused(), ack.error()), (7, None, None));
    }

    #[test]
    fn the_nonce_of_a_refused_response_is_no_agreement_later() {
        let mut ack = Ack::at(3);
        sent(&mut ack, "a", Some(5));
        ack.settle("a", error());
        assert!(matches!(ack.settle("a", None), Verdict::Repeated));
        assert_eq!((ack.position(), ack.acked()), (3, None));
    }

    #[test]
    fn agreement_out_of_turn_does_not_undo_a_refusal() {
        let mut ack = Ack::at(3);
        sent(&mut ack, "a", Some(5));
        ack.settle("a", error());
        sent(&mut ack, "b", None);
        assert!(matches!(ack.settle("b", None), Verdict::Accepted(_)));
        assert_eq!((ack.position(), ack.refused()), (3, Some(5)));
    }

    #[test]
    fn stale_and_missing_nonces_settle_nothing() {
        let mut ack = Ack::at(3);
        assert!(matches!(ack.settle("from another stream", None), Verdict::Stale));
        sent(&mut ack, "a", Some(5));
        assert!(matches!(ack.settle("", None), Verdict::Silent));
        assert!(matches!(ack.settle("b", error()), Verdict::Stale));
        assert!(ack.open().is_some());
        assert_eq!((ack.position(), ack.error()), (3, None));
    }

    #[test]
    fn nonces_differ_within_and_between_processes() {
        let (one, two) = (Nonces::new(), Nonces::new());
        assert_ne!(one.next(), one.next());
        assert_ne!(one.boot, two.boot);
    }
}

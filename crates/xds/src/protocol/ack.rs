//! ACK and NACK of the responses of one type: which response is outstanding, up to which sequence the proxy has accepted, what it rejected.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use crate::{
    Changes, Resource, Seq, Variant,
    protocol::{names::Charge, pending_reply::PendingReply, watch_info::SentInfo},
};

#[derive(Default)]
pub(crate) struct AckState {
    position: Seq,
    nacked: Option<Seq>,
    last: Option<SentResponse>,
    /// On the heap: mostly there is none.
    outstanding: Option<Box<OutstandingResponse>>,
    acked: Option<Arc<str>>,
    error: Option<Arc<str>>,
}

/// The last response.
pub(crate) struct SentResponse {
    pub(crate) nonce: Arc<str>,
    version: Seq,
    at: Instant,
}

impl SentResponse {
    /// `now` and `wall_clock`: the same moment.
    pub(crate) fn info(&self, now: Instant, wall_clock: SystemTime) -> SentInfo {
        let age = now.saturating_duration_since(self.at);
        SentInfo {
            nonce: self.nonce.clone(),
            version: self.version,
            at: wall_clock.checked_sub(age).unwrap_or(wall_clock),
        }
    }
}

/// A response that was neither ACKed nor NACKed yet.
pub(crate) struct OutstandingResponse {
    /// The position of the proxy after an ACK. `None`: the response holds some names only, so that the position stays.
    pub(crate) ack_seq: Option<Seq>,
    /// The sequence of the content.
    pub(crate) content_seq: Seq,
    /// The pending reply that it answers.
    pub(crate) pending: PendingReply,
    pub(crate) content: Content,
    /// When the oldest change in it arrived. `None`: it answers a request.
    pub(crate) changed_at: Option<Instant>,
    pub(crate) sent_at: Instant,
    /// It was counted as overdue.
    pub(crate) overdue: bool,
    /// What its own content counts for, if that is much.
    pub(crate) charge: Option<Charge>,
}

/// The resources of a response.
#[derive(Clone)]
pub(crate) enum Content {
    /// All of an answer of the class: other streams are sent the same.
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

    /// Of resources that were encoded for this stream alone, because it asked for names that the class does not have.
    pub(crate) fn own_bytes(&self, variant: Variant) -> usize {
        /// The response that is about to be sent, and what is remembered of it until its ACK.
        const OF_THIS_STREAM: usize = 2;
        let Content::Own(resources) = self else { return 0 };
        let own = resources.iter().filter(|resource| Arc::strong_count(resource) <= OF_THIS_STREAM);
        own.map(|resource| resource.len(variant) + resource.name.len()).sum()
    }
}

/// What a request says about the last response.
pub(crate) enum AckOutcome {
    /// It has no nonce.
    NoNonce,
    /// Its nonce is not that of the last response.
    StaleNonce,
    /// The last response was ACKed or NACKed before.
    Repeated,
    Ack(Box<OutstandingResponse>),
    Nack(Box<OutstandingResponse>),
}

impl AckState {
    pub(crate) fn at(position: Seq) -> AckState {
        AckState { position, ..AckState::default() }
    }

    pub(crate) fn sent(&mut self, nonce: Arc<str>, version: Seq, response: Box<OutstandingResponse>) {
        self.last = Some(SentResponse { nonce, version, at: response.sent_at });
        self.outstanding = Some(response);
    }

    /// `error`: the reason of a NACK.
    pub(crate) fn apply(&mut self, nonce: &str, error: Option<Arc<str>>) -> AckOutcome {
        if nonce.is_empty() {
            return AckOutcome::NoNonce;
        }
        let Some(last) = self.last.as_ref().filter(|last| *last.nonce == *nonce) else { return AckOutcome::StaleNonce };
        // After a NACK a proxy goes on to send the nonce that it rejected: that is no ACK.
        let Some(response) = self.outstanding.take() else { return AckOutcome::Repeated };
        if error.is_some() {
            self.error = error;
            self.nacked = Some(response.content_seq);
            return AckOutcome::Nack(response);
        }
        self.acked = Some(last.nonce.clone());
        self.error = None;
        // An ACK of some names says nothing about what was NACKed before.
        if let Some(seq) = response.ack_seq {
            self.nacked = None;
            self.advance(seq);
        }
        AckOutcome::Ack(response)
    }

    /// Nothing that concerns the proxy happened up to this sequence.
    pub(crate) fn advance(&mut self, seq: Seq) {
        self.position = self.position.max(seq);
    }

    /// There is nothing to send up to this sequence: what the proxy rejected before is held back, or no longer wanted.
    pub(crate) fn settle(&mut self, seq: Seq) {
        if self.error.take().is_some() {
            self.acked = self.last.as_ref().map(|last| last.nonce.clone());
        }
        self.nacked = None;
        self.advance(seq);
    }

    /// The proxy has accepted everything up to this sequence. 0: nothing yet.
    pub(crate) fn position(&self) -> Seq {
        self.position
    }

    /// The proxy rejected the content of this sequence. `None`: it rejected nothing since its last ACK.
    pub(crate) fn nacked_seq(&self) -> Option<Seq> {
        self.nacked
    }

    pub(crate) fn outstanding(&self) -> Option<&OutstandingResponse> {
        self.outstanding.as_deref()
    }

    pub(crate) fn outstanding_mut(&mut self) -> Option<&mut OutstandingResponse> {
        self.outstanding.as_deref_mut()
    }

    pub(crate) fn last(&self) -> Option<&SentResponse> {
        self.last.as_ref()
    }

    pub(crate) fn acked_nonce(&self) -> Option<&Arc<str>> {
        self.acked.as_ref()
    }

    pub(crate) fn error(&self) -> Option<&Arc<str>> {
        self.error.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ack: &mut AckState, nonce: &str, ack_seq: Option<Seq>) {
        let response = OutstandingResponse {
            ack_seq,
            content_seq: ack_seq.unwrap_or(9),
            pending: PendingReply::default(),
            content: Content::Own(Vec::new()),
            changed_at: None,
            sent_at: Instant::now(),
            overdue: false,
            charge: None,
        };
        ack.sent(nonce.into(), 1, Box::new(response));
    }

    fn error() -> Option<Arc<str>> {
        Some("no".into())
    }

    #[test]
    fn an_ack_moves_the_position() {
        let mut ack = AckState::default();
        sent(&mut ack, "a", Some(5));
        assert!(ack.outstanding().is_some());
        assert!(matches!(ack.apply("a", None), AckOutcome::Ack(_)));
        assert_eq!((ack.position(), ack.acked_nonce().map(|a| &**a)), (5, Some("a")));
        assert!(ack.outstanding().is_none());
    }

    #[test]
    fn an_ack_of_some_names_leaves_the_position() {
        let mut ack = AckState::at(3);
        sent(&mut ack, "a", None);
        assert!(matches!(ack.apply("a", None), AckOutcome::Ack(_)));
        assert_eq!(ack.position(), 3);
    }

    #[test]
    fn a_nack_keeps_the_position_and_the_error_until_the_next_ack() {
        let mut ack = AckState::at(3);
        sent(&mut ack, "a", Some(5));
        assert!(matches!(ack.apply("a", error()), AckOutcome::Nack(_)));
        assert_eq!((ack.position(), ack.nacked_seq(), ack.error().map(|e| &**e)), (3, Some(5), Some("no")));
        sent(&mut ack, "b", Some(7));
        assert_eq!(ack.error().map(|e| &**e), Some("no"));
        assert!(matches!(ack.apply("b", None), AckOutcome::Ack(_)));
        assert_eq!((ack.position(), ack.nacked_seq(), ack.error()), (7, None, None));
    }

    #[test]
    fn what_is_held_back_settles_a_nack() {
        let mut ack = AckState::at(3);
        sent(&mut ack, "a", Some(5));
        ack.apply("a", error());
        ack.settle(6);
        assert_eq!(
            (ack.position(), ack.nacked_seq(), ack.error(), ack.acked_nonce().map(|it| &**it)),
            (6, None, None, Some("a"))
        );
    }

    #[test]
    fn the_nonce_of_a_nacked_response_is_no_ack_later() {
        let mut ack = AckState::at(3);
        sent(&mut ack, "a", Some(5));
        ack.apply("a", error());
        assert!(matches!(ack.apply("a", None), AckOutcome::Repeated));
        assert_eq!((ack.position(), ack.acked_nonce()), (3, None));
    }

    #[test]
    fn an_ack_of_some_names_does_not_clear_a_nack() {
        let mut ack = AckState::at(3);
        sent(&mut ack, "a", Some(5));
        ack.apply("a", error());
        sent(&mut ack, "b", None);
        assert!(matches!(ack.apply("b", None), AckOutcome::Ack(_)));
        assert_eq!((ack.position(), ack.nacked_seq()), (3, Some(5)));
    }

    #[test]
    fn stale_and_missing_nonces_are_neither_ack_nor_nack() {
        let mut ack = AckState::at(3);
        assert!(matches!(ack.apply("from another stream", None), AckOutcome::StaleNonce));
        sent(&mut ack, "a", Some(5));
        assert!(matches!(ack.apply("", None), AckOutcome::NoNonce));
        assert!(matches!(ack.apply("b", error()), AckOutcome::StaleNonce));
        assert!(ack.outstanding().is_some());
        assert_eq!((ack.position(), ack.error()), (3, None));
    }
}

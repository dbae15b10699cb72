//! Requests of the delta variant: each adds names to the subscription or removes some. What they mean for a watch; nothing
//! is sent here.

use std::sync::Arc;

use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::{
    Seq, TypeUrl,
    protocol::{
        ack::AckOutcome, borrowed_request::BorrowedDeltaRequest, initial_versions::InitialVersions,
        pending_reply::PendingReply, request::nack_reason, subscription::Subscription, watch::Watch,
    },
};

/// Clusters sent before the proxy subscribed to load assignments: it may be warming them, and wait for assignments that it
/// holds already.
#[derive(Debug, Default)]
pub(crate) enum ClustersBeforeEds {
    #[default]
    None,
    Names(Vec<Arc<str>>),
    All,
}

/// What a request says about its type.
#[derive(Default)]
pub(crate) struct SubscriptionUpdate<'a> {
    nonce: &'a str,
    error: Option<Arc<str>>,
    subscribe: Vec<&'a str>,
    unsubscribe: Vec<&'a str>,
    initial_versions: InitialVersions,
}

impl<'a> SubscriptionUpdate<'a> {
    pub(crate) fn of(request: &'a DeltaDiscoveryRequest, initial_versions: InitialVersions) -> Self {
        Self {
            nonce: &request.response_nonce,
            error: nack_reason(request.error_detail.as_ref()),
            subscribe: request.resource_names_subscribe.iter().map(String::as_str).collect(),
            unsubscribe: request.resource_names_unsubscribe.iter().map(String::as_str).collect(),
            initial_versions,
        }
    }

    pub(crate) fn of_borrowed(request: &'a BorrowedDeltaRequest) -> Self {
        let (subscribe, unsubscribe) = (request.subscribe(), request.unsubscribe());
        Self { nonce: request.nonce(), subscribe, unsubscribe, ..Self::default() }
    }

    /// Lengths of the names that it adds.
    pub(crate) fn name_lengths(&self) -> impl Iterator<Item = usize> {
        self.subscribe.iter().map(|name| name.len()).chain([self.initial_versions.longest_name()])
    }
}

/// `slot`: the watch of the type. `None`: nothing was subscribed to yet.
pub(crate) fn handle(
    slot: &mut Option<Box<Watch>>,
    clusters_before_eds: &mut ClustersBeforeEds,
    kind: TypeUrl,
    SubscriptionUpdate { nonce, error, subscribe, unsubscribe, initial_versions }: SubscriptionUpdate<'_>,
    seq: Seq,
) -> AckOutcome {
    let watch = match slot {
        Some(watch) => watch,
        // Nothing was sent on this stream that could be NACKed.
        None if error.is_some() => return AckOutcome::NoNonce,
        // Whatever the nonce is: it comes from another stream, perhaps to another instance.
        None => {
            let subscription = Subscription::of_delta(kind, &subscribe, &unsubscribe, initial_versions.names());
            let warmed = if kind == TypeUrl::Endpoints { Some(clusters_before_eds) } else { None };
            let pending = first_reply(&subscription, initial_versions, warmed);
            *slot = Some(Box::new(Watch::new(kind, subscription, pending, seq)));
            return AckOutcome::NoNonce;
        }
    };
    let outcome = watch.apply_ack(nonce, error);
    // Also with a stale nonce: in this variant a change of the subscription is sent only once.
    let added = watch.subscription.update(&subscribe, &unsubscribe);
    watch.pending.everything = (watch.pending.everything && !watch.subscription.is_empty()) || added.everything;
    watch.pending.remove_names(&unsubscribe);
    watch.retry.remove_names(&unsubscribe);
    watch.pending.add_any_version(added.names.into_iter().chain(added.dropped));
    outcome
}

fn first_reply(
    subscription: &Subscription,
    initial_versions: InitialVersions,
    warmed: Option<&mut ClustersBeforeEds>,
) -> PendingReply {
    if subscription.is_empty() {
        return PendingReply::default();
    }
    let reply_required = subscription.wildcard();
    let mut pending = PendingReply { initial_versions, reply_required, ..PendingReply::everything() };
    match warmed.map(std::mem::take) {
        None | Some(ClustersBeforeEds::None) => {}
        Some(ClustersBeforeEds::All) => pending.forget_versions(),
        Some(ClustersBeforeEds::Names(names)) => pending.initial_versions.forget(names.iter().map(|name| &**name)),
    }
    pending
}

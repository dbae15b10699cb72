//! Requests of the delta variant: each adds names to the subscription or removes some. What they mean for a watch; nothing
//! is sent here.

use std::sync::Arc;

use crate::{
    Seq, TypeUrl,
    protocol::{
        ack::AckOutcome,
        initial_versions::InitialVersions,
        pending_reply::PendingReply,
        request::{Request, nack_reason},
        subscription::Subscription,
        watch::Watch,
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

/// `slot`: the watch of the type. `None`: nothing was subscribed to yet.
pub(crate) fn handle(
    slot: &mut Option<Box<Watch>>,
    clusters_before_eds: &mut ClustersBeforeEds,
    kind: TypeUrl,
    request: &mut Request,
    seq: Seq,
) -> AckOutcome {
    let error = nack_reason(request.error());
    let initial_versions = std::mem::take(&mut request.lists.initial_versions);
    let (subscribe, unsubscribe) = (request.lists.subscribe(), request.lists.unsubscribe());
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
    let outcome = watch.apply_ack(request.nonce(), error);
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

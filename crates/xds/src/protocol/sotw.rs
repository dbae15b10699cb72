//! Requests of the state-of-the-world variant: each names the whole subscription. What they mean for a watch; nothing is
//! sent here.

use crate::{
    ProxyInfo, Seq, TypeUrl,
    protocol::{
        ack::AckOutcome,
        pending_reply::PendingReply,
        request::{Request, nack_reason},
        subscription::{Added, Subscription},
        watch::Watch,
    },
};

/// `slot`: the watch of the type. `None`: nothing was subscribed to yet.
pub(crate) fn handle(
    slot: &mut Option<Box<Watch>>,
    proxy: &ProxyInfo,
    kind: TypeUrl,
    request: &Request,
    seq: Seq,
) -> AckOutcome {
    let (error, names) = (nack_reason(request.error()), request.lists.subscribe());
    let watch = match slot {
        Some(watch) => watch,
        // Nothing was sent on this stream that could be NACKed.
        None if error.is_some() => return AckOutcome::NoNonce,
        // Whatever the nonce is: it comes from another stream, perhaps to another instance.
        None => {
            let subscription = Subscription::of_list(kind, &names);
            if !subscription.is_empty() {
                let pending = PendingReply { reply_required: kind.wildcard(), ..PendingReply::everything() };
                *slot = Some(Box::new(Watch::new(kind, subscription, pending, seq)));
            }
            return AckOutcome::NoNonce;
        }
    };
    let outcome = watch.apply_ack(request.nonce(), error);
    if matches!(outcome, AckOutcome::StaleNonce) {
        return outcome;
    }
    let added = watch.subscription.replace(kind, &names);
    // An outstanding response is still to be ACKed or NACKed.
    if watch.subscription.is_empty() && !kind.wildcard() && watch.ack.outstanding().is_none() {
        *slot = None;
    } else {
        update_pending(watch, proxy, added, &outcome);
    }
    outcome
}

fn update_pending(watch: &mut Watch, proxy: &ProxyInfo, added: Added, outcome: &AckOutcome) {
    if watch.subscription.is_empty() {
        watch.pending = PendingReply::default();
        return;
    }
    let names = watch.subscription.names().clone();
    watch.pending.retain_names(|name| names.contains(name));
    watch.retry.retain_names(|name| names.contains(name));
    // Without a nonce and without an outstanding response the proxy starts again; with an outstanding response it has just
    // not seen that yet.
    let restarts = matches!(outcome, AckOutcome::NoNonce) && watch.ack.outstanding().is_none();
    let warming = matches!(outcome, AckOutcome::Repeated) && std::mem::take(&mut watch.answer_repeated_ack);
    let grown = !added.names.is_empty();
    watch.pending.everything |= restarts || warming || added.everything || grown && proxy.proxyless;
    watch.pending.add_names(added.names);
    watch.pending.reply_required |= (restarts || added.everything || grown) && watch.kind.wildcard();
}

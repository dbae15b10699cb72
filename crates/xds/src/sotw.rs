//! Requests of the state-of-the-world variant: each names all that is wanted. What they mean for a watch; nothing is
//! sent here.

use wire::envoy::service::discovery::v3::DiscoveryRequest;

use crate::{
    ProxyInfo, Seq, TypeUrl,
    ack::Verdict,
    owed::Owed,
    request::reason,
    subscription::{Added, Subscription},
    watch::Watch,
};

/// `place`: the watch of the type. `None`: it was not asked for yet.
pub(crate) fn handle(
    place: &mut Option<Box<Watch>>,
    proxy: &ProxyInfo,
    kind: TypeUrl,
    request: &DiscoveryRequest,
    now: Seq,
) -> Verdict {
    let error = reason(request.error_detail.as_ref());
    let watch = match place {
        Some(watch) => watch,
        // Nothing was sent on this stream that could be refused.
        None if error.is_some() => return Verdict::Silent,
        // Whatever the nonce says: it is of another stream, perhaps to another instance.
        None => {
            let subscription = Subscription::of_list(kind, &request.resource_names);
            if !subscription.is_empty() {
                let owed = Owed { reply: kind.wildcard(), ..Owed::everything() };
                *place = Some(Box::new(Watch::new(kind, subscription, owed, now)));
            }
            return Verdict::Silent;
        }
    };
    let verdict = watch.settle(&request.response_nonce, error);
    if matches!(verdict, Verdict::Stale) {
        return verdict;
    }
    let added = watch.subscription.replace(kind, &request.resource_names);
    // A response on its way is still to be answered.
    if watch.subscription.is_empty() && !kind.wildcard() && watch.ack.open().is_none() {
        *place = None;
    } else {
        owe(watch, proxy, added, &verdict);
    }
    verdict
}

fn owe(watch: &mut Watch, proxy: &ProxyInfo, added: Added, verdict: &Verdict) {
    if watch.subscription.is_empty() {
        watch.owed = Owed::default();
        return;
    }
    let names = watch.subscription.names().clone();
    watch.owed.retain_names(|name| names.contains(name));
    watch.again.retain_names(|name| names.contains(name));
    // Without a nonce and with nothing on its way, the proxy starts again; with a response on its way it has just not
    // seen it yet.
    let from_the_start = matches!(verdict, Verdict::Silent) && watch.ack.open().is_none();
    let warming = matches!(verdict, Verdict::Repeated) && std::mem::take(&mut watch.ask_again);
    let grown = !added.names.is_empty();
    watch.owed.everything |= from_the_start || warming || added.everything || grown && proxy.proxyless;
    watch.owed.add_names(added.names);
    watch.owed.reply |= (from_the_start || added.everything || grown) && watch.kind.wildcard();
}

//! Requests of the delta variant: each names what is wanted besides, or no longer. What they mean for a watch; nothing
//! is sent here.

use std::sync::Arc;

use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::{
    Seq, TypeUrl, ack::Verdict, brief::Brief, held::Held, owed::Owed, request::reason, subscription::Subscription,
    watch::Watch,
};

/// Clusters sent before the proxy asked for load assignments: it may be warming them, and wait for assignments that it
/// holds.
#[derive(Debug, Default)]
pub(crate) enum Warming {
    #[default]
    None,
    Names(Vec<Arc<str>>),
    All,
}

/// What a request says of its type.
#[derive(Default)]
pub(crate) struct Wish<'a> {
    nonce: &'a str,
    error: Option<Arc<str>>,
    subscribe: Vec<&'a str>,
    unsubscribe: Vec<&'a str>,
    held: Held,
}

impl<'a> Wish<'a> {
    pub(crate) fn of(request: &'a DeltaDiscoveryRequest, held: Held) -> Self {
        Self {
            nonce: &request.response_nonce,
            error: reason(request.error_detail.as_ref()),
            subscribe: request.resource_names_subscribe.iter().map(String::as_str).collect(),
            unsubscribe: request.resource_names_unsubscribe.iter().map(String::as_str).collect(),
            held,
        }
    }

    pub(crate) fn brief(brief: &'a Brief) -> Self {
        let (subscribe, unsubscribe) = (brief.subscribe(), brief.unsubscribe());
        Self { nonce: brief.nonce(), subscribe, unsubscribe, ..Self::default() }
    }

    /// Of the names that it brings.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.subscribe.iter().map(|name| name.len()).chain([self.held.longest()])
    }
}

/// `place`: the watch of the type. `None`: it was not asked for yet.
pub(crate) fn handle(
    place: &mut Option<Box<Watch>>,
    warming: &mut Warming,
    kind: TypeUrl,
    Wish { nonce, error, subscribe, unsubscribe, held }: Wish<'_>,
    now: Seq,
) -> Verdict {
    let watch = match place {
        Some(watch) => watch,
        // Nothing was sent on this stream that could be refused.
        None if error.is_some() => return Verdict::Silent,
        // Whatever the nonce says: it is of another stream, perhaps to another instance.
        None => {
            let subscription = Subscription::of_delta(kind, &subscribe, &unsubscribe, held.names());
            let owed = first_owed(&subscription, held, if kind == TypeUrl::Endpoints { Some(warming) } else { None });
            *place = Some(Box::new(Watch::new(kind, subscription, owed, now)));
            return Verdict::Silent;
        }
    };
    let verdict = watch.settle(nonce, error);
    // Also with a stale nonce: in this variant it is told only once what is wanted.
    let added = watch.subscription.update(&subscribe, &unsubscribe);
    watch.owed.everything = (watch.owed.everything && !watch.subscription.is_empty()) || added.everything;
    watch.owed.remove_names(&unsubscribe);
    watch.again.remove_names(&unsubscribe);
    watch.owed.insist(added.names.into_iter().chain(added.dropped));
    verdict
}

fn first_owed(subscription: &Subscription, held: Held, warming: Option<&mut Warming>) -> Owed {
    if subscription.is_empty() {
        return Owed::default();
    }
    let mut owed = Owed { held, reply: subscription.wildcard(), ..Owed::everything() };
    match warming.map(std::mem::take) {
        None | Some(Warming::None) => {}
        Some(Warming::All) => owed.forget_versions(),
        Some(Warming::Names(names)) => owed.held.forget(names.iter().map(|name| &**name)),
    }
    owed
}

//! The resources of one response: an answer of the class as it is, where that fits, or resources collected one by one.

use std::{collections::HashSet, sync::Arc};

use crate::{
    Changes, Class, ContentDigest, Names, Resource, Seq, TypeUrl,
    protocol::{
        ack::Content, initial_versions::InitialVersions, pending_reply::PendingReply, subscription::Subscription,
    },
};

/// Resources that one response has computed for it, such as load assignments of clusters that do not exist. The rest follows in the next
/// response, so that a request for tens of thousands of them does not block other streams.
const MAX_COMPUTED: usize = 1_000;

pub(crate) struct ResponseContent {
    pub(crate) content: Content,
    pub(crate) removed: Vec<Arc<str>>,
    /// The sequence of the content.
    pub(crate) seq: Seq,
    /// What is left for the next response.
    pub(crate) deferred: Option<PendingReply>,
}

impl ResponseContent {
    pub(crate) fn new(
        kind: TypeUrl,
        subscription: &Subscription,
        class: &dyn Class,
        pending: &mut PendingReply,
        changes: Option<&Arc<Changes>>,
    ) -> ResponseContent {
        match shared_answer(kind, subscription, class, pending, changes) {
            Some(all) => {
                let (removed, seq) = (all.removed.clone(), all.seq);
                ResponseContent { content: Content::Shared(all), removed, seq, deferred: None }
            }
            None => collect(kind, subscription, class, pending, changes.map(|changes| &**changes)),
        }
    }
}

/// An answer of the class that is, as it is, what this stream needs.
fn shared_answer(
    kind: TypeUrl,
    subscription: &Subscription,
    class: &dyn Class,
    pending: &PendingReply,
    changes: Option<&Arc<Changes>>,
) -> Option<Arc<Changes>> {
    // Shared responses are cached for other streams for a while; secrets must not be.
    if !pending.initial_versions.is_empty() || matches!(kind, TypeUrl::Extension | TypeUrl::Secret) {
        return None;
    }
    let (names, wildcard) = (subscription.names(), subscription.wildcard());
    let covered = |all: &Changes| all.changed.iter().all(|resource| names.contains(&resource.name));
    if pending.everything {
        let all = class.since(kind, 0);
        let exactly = if wildcard {
            names.is_empty() && pending.names.is_empty()
        } else {
            names.len() == all.changed.len() && names.digest() == all.names_digest()
        };
        return exactly.then_some(all);
    }
    let changes = changes.filter(|_| pending.names.is_empty() && pending.from.is_none())?;
    // A removed name that was subscribed to by itself may have an empty form.
    let exactly = if wildcard { names.is_empty() } else { changes.removed.is_empty() && covered(changes) };
    exactly.then(|| changes.clone())
}

fn collect(
    kind: TypeUrl,
    subscription: &Subscription,
    class: &dyn Class,
    pending: &mut PendingReply,
    changes: Option<&Changes>,
) -> ResponseContent {
    if pending.everything && !pending.initial_versions.is_empty() {
        let digest = class.content_digest(kind);
        if holds_everything(subscription, &digest, pending) {
            let (content, removed) = (Content::Own(Vec::new()), Vec::new());
            return ResponseContent { content, removed, seq: digest.seq, deferred: None };
        }
    }
    // Some names only: nothing but the sequence is needed of the rest.
    let all = class.since(kind, if pending.everything { 0 } else { Seq::MAX });
    let mut out = Collector { resources: Vec::new(), removed: Vec::new(), seq: all.seq, computed: 0 };
    match changes {
        _ if pending.everything && subscription.wildcard() => {
            out.add_all(&all, &mut pending.initial_versions, subscription);
        }
        Some(changes) if !pending.everything => out.add_changes(class, kind, changes, subscription),
        _ => {}
    }
    pending.initial_versions.build_index();
    let deferred = out.add_pending(class, kind, subscription.names(), pending);
    let Collector { resources, removed, seq, .. } = out;
    ResponseContent { content: Content::Own(resources), removed, seq, deferred }
}

/// The proxy reconnected with exactly what there is for it.
fn holds_everything(subscription: &Subscription, all: &ContentDigest, pending: &PendingReply) -> bool {
    let names = subscription.names();
    let subscribed = if subscription.wildcard() {
        names.is_empty()
    } else {
        names.len() == all.count && names.digest() == all.names
    };
    let versions = &pending.initial_versions;
    subscribed && pending.names.is_empty() && versions.len() == all.count && versions.digest() == Some(all.versions)
}

struct Collector {
    resources: Vec<Arc<Resource>>,
    removed: Vec<Arc<str>>,
    seq: Seq,
    /// Resources that were computed for this response.
    computed: usize,
}

impl Collector {
    fn add_all(&mut self, all: &Changes, initial_versions: &mut InitialVersions, subscription: &Subscription) {
        if !initial_versions.is_empty() {
            let exist: HashSet<&str> = all.changed.iter().map(|resource| &*resource.name).collect();
            let is_known = |name: &str| exist.contains(name) || subscription.names().contains(name);
            // As sent: to sort tens of thousands of names would cost more than all the rest.
            self.removed.extend(initial_versions.index_known(is_known));
        }
        self.resources.extend(all.changed.iter().filter(|resource| !is_held(initial_versions, resource)).cloned());
    }

    fn add_changes(&mut self, class: &dyn Class, kind: TypeUrl, changes: &Changes, subscription: &Subscription) {
        self.seq = changes.seq;
        let is_covered = |resource: &&Arc<Resource>| subscription.covers(&resource.name);
        self.resources.extend(changes.changed.iter().filter(is_covered).cloned());
        for name in changes.removed.iter().filter(|name| subscription.covers(name)) {
            // A name that was subscribed to may have an empty form, such as a load assignment without endpoints.
            match subscription.names().contains(name).then(|| class.named(kind, name)).flatten() {
                Some(resource) => self.resources.push(resource),
                None => self.removed.push(name.clone()),
            }
        }
    }

    /// Adds the names of a pending reply. Returns what is left for the next response.
    fn add_pending(
        &mut self,
        class: &dyn Class,
        kind: TypeUrl,
        subscribed: &Names,
        pending: &PendingReply,
    ) -> Option<PendingReply> {
        let is_reached = |name: &str| pending.reaches(name) && subscribed.contains(name);
        let is_requested = |name: &Arc<str>| is_reached(name) || pending.names.binary_search(name).is_ok();
        let start = if pending.everything { Some("") } else { pending.from.as_deref() };
        let mut all = start.into_iter().flat_map(|start| subscribed.iter_from(start));
        let mut others = pending.names.iter().filter(|name| !is_reached(name));
        let from = self.add_names(class, kind, &mut all, is_requested, &pending.initial_versions).cloned();
        let first = if from.is_some() {
            None
        } else {
            self.add_names(class, kind, &mut others, is_requested, &pending.initial_versions)
        };
        let names: Vec<Arc<str>> = match (&from, first) {
            (None, None) => return None,
            (_, first) => first.into_iter().chain(others).cloned().collect(),
        };
        Some(PendingReply { from, names, ..PendingReply::default() })
    }

    /// `names`: unique, but some may have been added already: a response must not hold a name twice. Returns the name that is left for the
    /// next response; those behind it were not taken.
    fn add_names<'a>(
        &mut self,
        class: &dyn Class,
        kind: TypeUrl,
        names: &mut impl Iterator<Item = &'a Arc<str>>,
        is_requested: impl Fn(&Arc<str>) -> bool,
        initial_versions: &InitialVersions,
    ) -> Option<&'a Arc<str>> {
        let first = names.next()?;
        let mut seen: HashSet<Arc<str>> = self.resources.iter().map(|resource| resource.name.clone()).collect();
        seen.extend(self.removed.iter().cloned());
        for name in [first].into_iter().chain(names) {
            if seen.contains(name) {
                continue;
            }
            if !class.is_precomputed(kind, name) {
                self.computed += 1;
                if self.computed > MAX_COMPUTED {
                    return Some(name);
                }
            }
            match class.named(kind, name) {
                Some(resource) if is_held(initial_versions, &resource) => {}
                // An alias leads to a resource of another name, which may be requested as well.
                Some(resource)
                    if resource.name != *name
                        && (is_requested(&resource.name) || !seen.insert(resource.name.clone())) => {}
                Some(resource) => self.resources.push(resource),
                None => self.removed.push(name.clone()),
            }
        }
        None
    }
}

fn is_held(initial_versions: &InitialVersions, resource: &Resource) -> bool {
    !resource.version.is_empty() && initial_versions.has(&resource.name, &resource.version)
}

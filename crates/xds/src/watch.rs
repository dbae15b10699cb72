//! One type on one stream: what is subscribed, what is owed, what was answered, and from these the next response. No
//! IO.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use http2::clock;

use crate::{
    Changes, Class, Resource, Seq, Tally, TypeUrl, Variant, Watched,
    ack::{Ack, Content, Open, Sent, Verdict},
    held::Held,
    owed::Owed,
    subscription::Subscription,
};

/// Resources that one response has made for it, such as load assignments of clusters that do not exist. The rest comes with the next, so that a
/// request for a hundred thousand of them does not keep others waiting.
const MADE_AT_ONCE: usize = 1_000;

/// In this order: what every push and every answer to it needs lies together.
#[repr(C)]
pub(crate) struct Watch {
    pub(crate) kind: TypeUrl,
    /// A request that looks like a repeated ACK is answered once: the proxy may be warming clusters.
    pub(crate) ask_again: bool,
    /// The proxy came with all it needs.
    pub(crate) resumed: bool,
    /// There is nothing new up to here.
    checked: Seq,
    pub(crate) subscription: Subscription,
    pub(crate) ack: Ack,
    retiring: Retiring,
    pub(crate) owed: Owed,
    /// What a refused response was meant to settle: it goes along with the next one.
    pub(crate) again: Owed,
}

/// What is gone from the class, but may still be named by what the proxy holds.
#[derive(Debug, Default, PartialEq, Eq)]
enum Retiring {
    #[default]
    Nothing,
    Names(BTreeSet<Arc<str>>),
    /// Without removals by name: a response that only leaves out what is gone.
    Response,
}

/// The content of a response.
pub(crate) struct Answer {
    pub(crate) content: Content,
    /// Of content that is not shared.
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) version: Seq,
    /// Names in `content` whose content is new to the proxy, of clusters.
    pub(crate) fresh: Fresh,
    pub(crate) open: Box<Open>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    All,
    Names(Vec<Arc<str>>),
}

/// The history no longer reaches back to where the proxy is, and only the proxy knows what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// May an answer hold news, or only what is owed?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Free,
    /// News of a type that goes first has to wait, so this one's waits too.
    Held,
    /// Removals wait until what names them has changed.
    Careful,
}

impl Watch {
    pub(crate) fn new(kind: TypeUrl, subscription: Subscription, owed: Owed, now: Seq) -> Watch {
        let ack = if owed.is_empty() { Ack::at(now) } else { Ack::default() };
        Watch {
            kind,
            subscription,
            ack,
            owed,
            again: Owed::default(),
            ask_again: false,
            resumed: false,
            checked: 0,
            retiring: Retiring::Nothing,
        }
    }

    /// The next response, if there is something to say and the last one was answered. `now`: the newest sequence.
    pub(crate) fn answer(
        &mut self,
        variant: Variant,
        class: &dyn Class,
        now: Seq,
        turn: Turn,
    ) -> Result<Option<Answer>, Lost> {
        if self.ack.open().is_some() {
            return Ok(None);
        }
        // The first response is about everything, also if what it was owed for has been left meanwhile.
        let first = self.ack.position() == 0 && self.ack.refused().is_none();
        self.owed.everything |= first && !self.owed.is_empty();
        let careful = turn == Turn::Careful && self.owed.is_empty() && self.again.is_empty();
        if careful && variant == Variant::Sotw && self.only_removals(class, now) {
            self.retiring = Retiring::Response;
            return Ok(None);
        }
        let news = if turn == Turn::Held { None } else { self.news(class, now) };
        let Some(news) = news else {
            let owed = std::mem::take(&mut self.owed);
            return Ok(if owed.is_empty() { None } else { self.made(variant, class, owed, None) });
        };
        let mut owed = std::mem::take(&mut self.owed);
        owed.add(std::mem::take(&mut self.again));
        if news.full && !owed.everything {
            if variant == Variant::Delta && self.subscription.wildcard() {
                return Err(Lost);
            }
            owed.everything = true;
        }
        if careful && variant == Variant::Delta && !news.removed.is_empty() {
            let rest = self.without_removals(&news);
            return Ok(self.made(variant, class, owed, Some(&rest)));
        }
        Ok(self.made(variant, class, owed, Some(&news)))
    }

    fn without_removals(&mut self, news: &Changes) -> Arc<Changes> {
        let removed = news.removed.iter().filter(|name| self.subscription.covers(name)).cloned();
        match &mut self.retiring {
            Retiring::Names(names) => names.extend(removed),
            other => *other = Retiring::Names(removed.collect()),
        }
        Arc::new(Changes { removed: Vec::new(), ..news.clone() })
    }

    /// Names went since the proxy last agreed.
    pub(crate) fn would_remove(&self, class: &dyn Class, now: Seq) -> bool {
        let position = self.ack.position();
        position > 0
            && position < now
            && class.has_news(self.kind, position)
            && !class.since(self.kind, position).removed.is_empty()
    }

    fn only_removals(&self, class: &dyn Class, now: Seq) -> bool {
        let position = self.ack.position();
        if position == 0 || position >= now || self.ack.refused().is_some() {
            return false;
        }
        let news = class.since(self.kind, position);
        !news.full && news.changed.is_empty() && self.touched_by(&news)
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring != Retiring::Nothing
    }

    /// What waited to be removed goes out next. What exists again by now is sent instead.
    pub(crate) fn retire(&mut self) {
        if let Retiring::Names(names) = std::mem::take(&mut self.retiring) {
            self.owed.add_names(names);
        }
    }

    /// The proxy may hold something older than what there is now.
    pub(crate) fn is_unsettled(&self, class: &dyn Class, now: Seq) -> bool {
        let position = self.ack.position();
        self.ack.open().is_some()
            || self.ack.refused().is_some()
            || !self.owed.is_empty()
            || position > 0 && position < now && self.is_touched(class, position)
    }

    /// Nothing is owed, and it was looked at since the last news.
    pub(crate) fn is_settled(&self, now: Seq) -> bool {
        self.owed.is_empty() && self.checked >= now
    }

    /// What a request says of the last response. A refused one leaves what it was meant to settle for the next.
    pub(crate) fn settle(&mut self, nonce: &str, error: Option<Arc<str>>) -> Verdict {
        let mut verdict = self.ack.settle(nonce, error);
        match &mut verdict {
            Verdict::Refused(open) => {
                let mut owed = std::mem::take(&mut open.owed);
                owed.forget_versions();
                owed.reply = false;
                self.again.add(owed);
            }
            Verdict::Accepted(open) if open.to.is_some() => self.again = Owed::default(),
            _ => {}
        }
        verdict
    }

    /// Clusters were sent: the load assignments of those names go out again.
    pub(crate) fn warm(&mut self, fresh: &Fresh) {
        let names = match fresh {
            Fresh::All => {
                self.owed.everything = true;
                self.owed.forget_versions();
                &[][..]
            }
            Fresh::Names(names) => names,
        };
        self.owed.insist(names.iter().filter(|name| self.subscription.covers(name)).cloned());
        self.ask_again |= *fresh == Fresh::All || !names.is_empty();
    }

    /// Is there news that cannot be sent yet?
    pub(crate) fn behind(&self, class: &dyn Class, now: Seq) -> bool {
        let Some(open) = self.ack.open() else { return false };
        open.as_of < now && self.is_touched(class, open.as_of)
    }

    fn is_touched(&self, class: &dyn Class, since: Seq) -> bool {
        class.has_news(self.kind, since) && self.touched_by(&class.since(self.kind, since))
    }

    /// As tables show it.
    pub(crate) fn shown(&self) -> Watched {
        Watched {
            kind: self.kind,
            wildcard: self.subscription.wildcard(),
            names: self.subscription.names().clone(),
            sent: self.ack.last().map(Sent::shown),
            resumed: self.resumed,
            position: self.ack.position(),
            acked: self.ack.acked().cloned(),
            last_error: self.ack.error().cloned(),
        }
    }

    /// What happened since the proxy last agreed, if any of it concerns the proxy and is newer than what it refused.
    fn news(&mut self, class: &dyn Class, now: Seq) -> Option<Arc<Changes>> {
        let (position, refused) = (self.ack.position(), self.ack.refused());
        if self.checked >= now || (position == 0 && refused.is_none()) {
            return None;
        }
        self.checked = now;
        let newest = class.news(self.kind, refused.unwrap_or(position));
        let seq = newest.as_ref().map_or(now, |newest| newest.seq.max(now));
        let Some(newest) = newest.filter(|newest| self.touched_by(newest)) else {
            if refused.is_none() {
                self.ack.advance(seq);
            }
            return None;
        };
        let all_again = self.again.everything || self.owed.everything;
        if refused.is_none() || all_again { Some(newest) } else { Some(class.since(self.kind, position)) }
    }

    fn touched_by(&self, changes: &Changes) -> bool {
        if changes.full {
            return !self.subscription.is_empty();
        }
        changes.changed.iter().any(|resource| self.subscription.covers(&resource.name))
            || changes.removed.iter().any(|name| self.subscription.covers(name))
    }

    /// `None`: it turned out that there is nothing to send.
    fn made(
        &mut self,
        variant: Variant,
        class: &dyn Class,
        mut owed: Owed,
        news: Option<&Arc<Changes>>,
    ) -> Option<Answer> {
        let complete = variant == Variant::Sotw && self.kind.wildcard();
        let asked = !owed.is_empty();
        owed.everything |= complete;
        let shared = self.shared(class, &owed, news);
        let Gathered { content, mut removed, seq, later } = match shared {
            Some(all) => Gathered::of(Content::Shared(all.clone()), all.removed.clone(), all.seq),
            None => self.gathered(class, &mut owed, news.map(|news| &**news)),
        };
        self.owed.defer(later, &owed.held);
        // Secrets that do not exist, or are not for this proxy, are left unanswered: as from istiod.
        if variant == Variant::Sotw || matches!(self.kind, TypeUrl::Extension | TypeUrl::Secret) {
            removed.clear();
        }
        let resources = content.resources();
        let to = (owed.everything || news.is_some()).then_some(seq);
        if resources.is_empty() && removed.is_empty() && !owed.reply && !complete {
            if let Some(to) = to {
                self.ack.advance(to);
            }
            self.resumed |= !owed.held.is_empty();
            return None;
        }
        let fresh = match news {
            _ if self.kind != TypeUrl::Cluster => Fresh::Names(Vec::new()),
            Some(news) if complete && !asked => {
                Fresh::Names(news.changed.iter().map(|resource| resource.name.clone()).collect())
            }
            _ if !resources.is_empty() && (complete || owed.everything && owed.held.is_empty()) => Fresh::All,
            _ => Fresh::Names(resources.iter().map(|resource| resource.name.clone()).collect()),
        };
        let began: Option<Instant> = news.filter(|_| !asked).and_then(|news| news.began);
        let open =
            Box::new(Open { to, as_of: seq, owed, content: content.clone(), began, at: clock::now(), overdue: false });
        Some(Answer { content, removed, version: seq, fresh, open })
    }

    /// An answer of the class that is, as it stands, what this stream needs.
    fn shared(&self, class: &dyn Class, owed: &Owed, news: Option<&Arc<Changes>>) -> Option<Arc<Changes>> {
        // What is shared is kept for others for a while; secrets are not.
        if !owed.held.is_empty() || matches!(self.kind, TypeUrl::Extension | TypeUrl::Secret) {
            return None;
        }
        let (names, wildcard) = (self.subscription.names(), self.subscription.wildcard());
        let covered = |all: &Changes| all.changed.iter().all(|resource| names.contains(&resource.name));
        if owed.everything {
            let all = class.since(self.kind, 0);
            let exactly = if wildcard {
                names.is_empty() && owed.names.is_empty()
            } else {
                names.len() == all.changed.len() && names.digest() == all.names()
            };
            return exactly.then_some(all);
        }
        let news = news.filter(|_| owed.names.is_empty())?;
        // A removed name that was asked for by itself may have an empty form.
        let exactly = if wildcard { names.is_empty() } else { news.removed.is_empty() && covered(news) };
        exactly.then(|| news.clone())
    }

    fn gathered(&self, class: &dyn Class, owed: &mut Owed, news: Option<&Changes>) -> Gathered {
        if owed.everything && !owed.held.is_empty() {
            let tally = class.tally(self.kind);
            if self.holds_all(&tally, owed) {
                return Gathered::of(Content::Own(Vec::new()), Vec::new(), tally.seq);
            }
        }
        // Some names alone: nothing but the sequence is needed of the rest.
        let all = class.since(self.kind, if owed.everything { 0 } else { Seq::MAX });
        let mut out = Picked { resources: Vec::new(), removed: Vec::new(), seq: all.seq, later: Vec::new() };
        owed.held.look_up();
        let held = &owed.held;
        match news {
            _ if owed.everything && self.subscription.wildcard() => out.take_all(&all, held, &self.subscription),
            Some(news) if !owed.everything => out.take_news(class, self.kind, news, &self.subscription),
            _ => {}
        }
        let subscribed = self.subscription.names();
        let all_names = subscribed.iter().filter(|_| owed.everything);
        let is_among_all = |name: &str| owed.everything && subscribed.contains(name);
        let others = owed.names.iter().filter(|name| !is_among_all(name));
        let is_asked = |name: &Arc<str>| is_among_all(name) || owed.names.binary_search(name).is_ok();
        out.take_names(class, self.kind, all_names.chain(others), is_asked, held);
        Gathered { content: Content::Own(out.resources), removed: out.removed, seq: out.seq, later: out.later }
    }

    /// The proxy came with exactly what there is for it.
    fn holds_all(&self, all: &Tally, owed: &Owed) -> bool {
        let names = self.subscription.names();
        let wanted = if self.subscription.wildcard() {
            names.is_empty()
        } else {
            names.len() == all.count && names.digest() == all.names
        };
        wanted && owed.names.is_empty() && owed.held.len() == all.count && owed.held.digest() == Some(all.versions)
    }
}

struct Gathered {
    content: Content,
    removed: Vec<Arc<str>>,
    seq: Seq,
    /// Names that are left for the next response.
    later: Vec<Arc<str>>,
}

impl Gathered {
    fn of(content: Content, removed: Vec<Arc<str>>, seq: Seq) -> Gathered {
        Gathered { content, removed, seq, later: Vec::new() }
    }
}

struct Picked {
    resources: Vec<Arc<Resource>>,
    removed: Vec<Arc<str>>,
    seq: Seq,
    later: Vec<Arc<str>>,
}

impl Picked {
    fn take_all(&mut self, all: &Changes, held: &Held, subscription: &Subscription) {
        self.resources.extend(all.changed.iter().filter(|resource| !is_held(held, resource)).cloned());
        if held.is_empty() {
            return;
        }
        let exist: HashSet<&str> = all.changed.iter().map(|resource| &*resource.name).collect();
        let gone = |name: &&str| !exist.contains(name) && !subscription.names().contains(name);
        let mut gone: Vec<&str> = held.names().filter(gone).collect();
        gone.sort_unstable();
        gone.dedup();
        self.removed.extend(gone.into_iter().map(Arc::from));
    }

    fn take_news(&mut self, class: &dyn Class, kind: TypeUrl, news: &Changes, subscription: &Subscription) {
        self.seq = news.seq;
        let covered = |resource: &&Arc<Resource>| subscription.covers(&resource.name);
        self.resources.extend(news.changed.iter().filter(covered).cloned());
        for name in news.removed.iter().filter(|name| subscription.covers(name)) {
            // A name that is asked for may have an empty form, such as a load assignment without endpoints.
            match subscription.names().contains(name).then(|| class.named(kind, name)).flatten() {
                Some(resource) => self.resources.push(resource),
                None => self.removed.push(name.clone()),
            }
        }
    }

    /// `names`: each once, but some may have been taken already: a response must not hold a name twice.
    fn take_names<'a>(
        &mut self,
        class: &dyn Class,
        kind: TypeUrl,
        names: impl Iterator<Item = &'a Arc<str>>,
        is_asked: impl Fn(&Arc<str>) -> bool,
        held: &Held,
    ) {
        let mut names = names.peekable();
        if names.peek().is_none() {
            return;
        }
        let mut seen: HashSet<Arc<str>> = self.resources.iter().map(|resource| resource.name.clone()).collect();
        seen.extend(self.removed.iter().cloned());
        let mut made = 0;
        while let Some(name) = names.next() {
            if seen.contains(name) {
                continue;
            }
            if !class.is_ready(kind, name) {
                made += 1;
                if made > MADE_AT_ONCE {
                    self.later = [name].into_iter().chain(names).cloned().collect();
                    return;
                }
            }
            match class.named(kind, name) {
                Some(resource) if is_held(held, &resource) => {}
                // An alias leads to a resource of another name, which may be asked for as well.
                Some(resource)
                    if resource.name != *name && (is_asked(&resource.name) || !seen.insert(resource.name.clone())) => {}
                Some(resource) => self.resources.push(resource),
                None => self.removed.push(name.clone()),
            }
        }
    }
}

fn is_held(held: &Held, resource: &Resource) -> bool {
    !resource.version.is_empty() && held.has(&resource.name, &resource.version)
}

#[cfg(test)]
mod tests;

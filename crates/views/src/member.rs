//! A stream's place in a class. Classes can change under it: a pod that is relabelled moves, and the stream sees one history.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::{Placement, Proxy};
use xds::{Bell, Changes, Resource, Seq, Tally, TypeUrl};

use crate::secrets::{Review, Secrets};
use crate::table::Table;
use crate::view::{Sight, View};

/// A class and its newest view. Its members read through it: a refresh tells all of them at once.
#[derive(Debug)]
pub(crate) struct Seat {
    view: ArcSwap<View>,
}

impl Seat {
    pub(crate) fn new(view: View) -> Self {
        Self { view: ArcSwap::from_pointee(view) }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn refresh(&self, view: View) {
        self.view.store(Arc::new(view));
    }
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) news: Arc<Bell>,
    seat: ArcSwap<Seat>,
    /// `None`: nobody knows who it is, and it gets none.
    secrets: Option<Secrets>,
    /// When it last moved, and every name that it may hold from former classes.
    moved: Mutex<Moved>,
}

/// The proxy behind what a stream was given when it joined: as it was admitted. `None`: it is not of [`Views`](crate::Views).
pub fn served_proxy(class: &dyn xds::Class) -> Option<&Arc<Proxy>> {
    (class as &dyn Any).downcast_ref::<Member>().map(|member| &member.proxy)
}

#[derive(Debug, Default)]
struct Moved {
    at: Seq,
    /// When it came into the class that it left, and what that class held then.
    came: Seq,
    former: Vec<(TypeUrl, Arc<Table>)>,
    /// Every name that it may hold from former classes, unless it is behind `forgotten`.
    left: BTreeSet<(TypeUrl, Arc<str>)>,
    forgotten: Seq,
}

impl Moved {
    fn leave(&mut self, view: &Sight<'_>, seq: Seq) {
        (self.came, self.at) = (self.at, seq);
        self.former = view.tables().map(|(kind, table)| (kind, table.clone())).collect();
        for (kind, table) in &self.former {
            self.left.extend(table.known().map(|name| (*kind, name.clone())));
            self.forgotten = self.forgotten.max(table.forgotten);
        }
    }

    /// The proxy has it from the class that it left.
    fn has(&self, kind: TypeUrl, since: Seq, resource: &Resource) -> bool {
        let former = self.former.iter().filter(|(former, _)| *former == kind);
        since >= self.came && former.map(|(_, table)| table).any(|table| table.was_told(since, resource))
    }
}

impl Member {
    pub(crate) fn new(proxy: Arc<Proxy>, seat: Arc<Seat>, news: Arc<Bell>, secrets: Option<Secrets>) -> Self {
        Self { proxy, news, seat: ArcSwap::new(seat), secrets, moved: Mutex::default() }
    }

    /// Answers whether a secret that it asked for is new.
    pub(crate) fn review(&self, review: Review<'_>) -> bool {
        let secrets = self.secrets.as_ref();
        secrets.is_some_and(|secrets| secrets.review(review, &self.placement()))
    }

    fn placement(&self) -> Placement {
        self.seat.load().view().now().placement()
    }

    pub(crate) fn move_to(&self, seat: Arc<Seat>, seq: Seq) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.leave(&self.seat.load().view().now(), seq);
        self.seat.store(seat);
    }
}

impl xds::Class for Member {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        if let (TypeUrl::Secret, Some(secrets)) = (kind, &self.secrets) {
            return Arc::new(secrets.since(since));
        }
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = self.seat.load();
        let view = seat.view.load();
        let view = view.now();
        if since >= moved.at {
            moved.former.retain(|(former, _)| *former != kind);
            return view.since(kind, since);
        }
        let all = view.since(kind, 0);
        if since < moved.forgotten.max(1) {
            // What this proxy was sent before it moved may be newer than anything in the class it is in now.
            return if all.seq >= moved.at { all } else { Arc::new(Changes { seq: moved.at, ..Changes::clone(&all) }) };
        }
        let left = moved.left.iter().filter(|(left, name)| *left == kind && !view.holds(kind, name));
        Arc::new(Changes {
            seq: all.seq.max(moved.at),
            changed: all.changed.iter().filter(|resource| !moved.has(kind, since, resource)).cloned().collect(),
            removed: left.map(|(_, name)| name.clone()).collect(),
            began: all.began,
            ..Changes::default()
        })
    }

    fn tally(&self, kind: TypeUrl) -> Tally {
        if kind == TypeUrl::Secret && self.secrets.is_some() {
            let all = self.since(kind, 0);
            return Tally::of(&all.changed).at(all.seq);
        }
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        self.seat.load().view.load().now().tally(kind).at(moved.at)
    }

    fn has_news(&self, kind: TypeUrl, since: Seq) -> bool {
        if kind == TypeUrl::Secret && self.secrets.is_some() {
            return true;
        }
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if since < moved.at {
            return true;
        }
        moved.former.retain(|(former, _)| *former != kind);
        self.seat.load().view.load().now().has_news(kind, since)
    }

    fn news(&self, kind: TypeUrl, since: Seq) -> Option<Arc<Changes>> {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if since < moved.at || kind == TypeUrl::Secret && self.secrets.is_some() {
            drop(moved);
            return Some(self.since(kind, since));
        }
        moved.former.retain(|(former, _)| *former != kind);
        let seat = self.seat.load();
        let view = seat.view.load();
        let view = view.now();
        view.has_news(kind, since).then(|| view.since(kind, since))
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        match (kind, &self.secrets) {
            (TypeUrl::Secret, Some(secrets)) => secrets.named(|| self.placement(), name),
            _ => self.seat.load().view().now().named(kind, name),
        }
    }

    fn is_ready(&self, kind: TypeUrl, name: &str) -> bool {
        match kind {
            TypeUrl::Endpoints | TypeUrl::Route => self.seat.load().view().now().holds(kind, name),
            _ => true,
        }
    }
}

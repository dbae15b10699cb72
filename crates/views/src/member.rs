//! A stream's membership in a class. A pod that is relabelled moves to another class; its stream still sees one history.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::{Placement, Proxy};
use xds::{Changes, ContentDigest, Notifier, Resource, Seq, TypeUrl};

use crate::secrets::{Recheck, Secrets};
use crate::table::Table;
use crate::view::{View, ViewSnapshot};

/// A class and its current view. Members read through it, so that one store publishes a refresh to all of them.
#[derive(Debug)]
pub(crate) struct ClassHandle {
    /// Tells classes apart on pages; never used again by another class.
    number: u64,
    view: ArcSwap<View>,
}

static CLASSES: AtomicU64 = AtomicU64::new(0);

impl ClassHandle {
    pub(crate) fn new(view: Arc<View>) -> Self {
        Self { number: CLASSES.fetch_add(1, Ordering::Relaxed) + 1, view: ArcSwap::new(view) }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn publish(&self, view: Arc<View>) {
        self.view.store(view);
    }
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) notifier: Arc<Notifier>,
    handle: ArcSwap<ClassHandle>,
    /// `None`: the caller is unauthenticated and gets no secrets.
    secrets: Option<Secrets>,
    /// Moves between classes.
    moves: Mutex<MoveHistory>,
}

/// The proxy of a stream, as it was admitted. `None`: the class is not one of [`Views`](crate::Views).
pub fn served_proxy(class: &dyn xds::Class) -> Option<&Arc<Proxy>> {
    (class as &dyn Any).downcast_ref::<Member>().map(|member| &member.proxy)
}

/// The number of the class that a stream is in now: streams with equal numbers have equal configuration. `None`: as with `served_proxy`.
pub fn class_number(class: &dyn xds::Class) -> Option<u64> {
    (class as &dyn Any).downcast_ref::<Member>().map(|member| member.handle.load().number)
}

#[derive(Debug, Default)]
struct MoveHistory {
    moved_at: Seq,
    /// When it joined the class that it left, and the tables of that class.
    joined_at: Seq,
    previous_tables: Vec<(TypeUrl, Arc<Table>)>,
    /// Every name that the proxy may hold from previous classes, unless its sequence is before `compacted_at`.
    previous_names: BTreeSet<(TypeUrl, Arc<str>)>,
    compacted_at: Seq,
}

impl MoveHistory {
    fn leave(&mut self, view: &ViewSnapshot<'_>, seq: Seq) {
        (self.joined_at, self.moved_at) = (self.moved_at, seq);
        self.previous_tables = view.tables().map(|(kind, table)| (kind, table.clone())).collect();
        for (kind, table) in &self.previous_tables {
            self.previous_names.extend(table.known_names().map(|name| (*kind, name.clone())));
            self.compacted_at = self.compacted_at.max(table.compacted_at);
        }
    }

    /// Whether the proxy holds this version from the class that it left.
    fn has_sent(&self, kind: TypeUrl, since: Seq, resource: &Resource) -> bool {
        let tables = self.previous_tables.iter().filter(|(of, _)| *of == kind);
        since >= self.joined_at && tables.map(|(_, table)| table).any(|table| table.has_sent(since, resource))
    }
}

impl Member {
    pub(crate) fn new(
        proxy: Arc<Proxy>,
        handle: Arc<ClassHandle>,
        notifier: Arc<Notifier>,
        secrets: Option<Secrets>,
    ) -> Self {
        Self { proxy, notifier, handle: ArcSwap::new(handle), secrets, moves: Mutex::default() }
    }

    /// Returns whether a secret that the stream requested changed.
    pub(crate) fn recheck_secrets(&self, recheck: Recheck<'_>) -> bool {
        let secrets = self.secrets.as_ref();
        secrets.is_some_and(|secrets| secrets.recheck(recheck, &self.placement()))
    }

    fn placement(&self) -> Placement {
        self.handle.load().view().snapshot().placement()
    }

    pub(crate) fn move_to(&self, handle: Arc<ClassHandle>, seq: Seq) {
        if Arc::ptr_eq(&self.handle.load(), &handle) {
            return;
        }
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        moves.leave(&self.handle.load().view().snapshot(), seq);
        self.handle.store(handle);
    }
}

impl xds::Class for Member {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        if let (TypeUrl::Secret, Some(secrets)) = (kind, &self.secrets) {
            return Arc::new(secrets.since(since));
        }
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = self.handle.load();
        let view = handle.view.load();
        let view = view.snapshot();
        if since >= moves.moved_at {
            moves.previous_tables.retain(|(of, _)| *of != kind);
            return view.since(kind, since);
        }
        let all = view.since(kind, 0);
        if since < moves.compacted_at.max(1) {
            // Before the move the proxy may have been sent a higher sequence than that of its new class.
            return if all.seq >= moves.moved_at {
                all
            } else {
                Arc::new(Changes { seq: moves.moved_at, ..Changes::clone(&all) })
            };
        }
        let left = moves.previous_names.iter().filter(|(of, name)| *of == kind && !view.holds(kind, name));
        Arc::new(Changes {
            seq: all.seq.max(moves.moved_at),
            changed: all.changed.iter().filter(|resource| !moves.has_sent(kind, since, resource)).cloned().collect(),
            removed: left.map(|(_, name)| name.clone()).collect(),
            changed_at: all.changed_at,
            ..Changes::default()
        })
    }

    fn content_digest(&self, kind: TypeUrl) -> ContentDigest {
        if kind == TypeUrl::Secret && self.secrets.is_some() {
            let all = self.since(kind, 0);
            return ContentDigest::of(&all.changed).at(all.seq);
        }
        let moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle.load().view.load().snapshot().content_digest(kind).at(moves.moved_at)
    }

    fn has_changes(&self, kind: TypeUrl, since: Seq) -> bool {
        if kind == TypeUrl::Secret && self.secrets.is_some() {
            return true;
        }
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        if since < moves.moved_at {
            return true;
        }
        moves.previous_tables.retain(|(of, _)| *of != kind);
        self.handle.load().view.load().snapshot().has_changes(kind, since)
    }

    fn changes_if_any(&self, kind: TypeUrl, since: Seq) -> Option<Arc<Changes>> {
        let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        if since < moves.moved_at || kind == TypeUrl::Secret && self.secrets.is_some() {
            drop(moves);
            return Some(self.since(kind, since));
        }
        moves.previous_tables.retain(|(of, _)| *of != kind);
        let handle = self.handle.load();
        let view = handle.view.load();
        let view = view.snapshot();
        view.has_changes(kind, since).then(|| view.since(kind, since))
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        match (kind, &self.secrets) {
            (TypeUrl::Secret, Some(secrets)) => secrets.named(|| self.placement(), name),
            _ => self.handle.load().view().snapshot().named(kind, name),
        }
    }

    fn is_precomputed(&self, kind: TypeUrl, name: &str) -> bool {
        match kind {
            TypeUrl::Endpoints | TypeUrl::Route => self.handle.load().view().snapshot().holds(kind, name),
            _ => true,
        }
    }
}

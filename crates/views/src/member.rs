//! A stream's membership in a class. A pod that is relabelled moves to another class; its stream still sees one history. Holds are applied here to
//! what the class answers.

mod held;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::{Placement, Proxy};
use xds::{Changes, ContentDigest, Kinds, Notifier, Resource, Seq, TypeUrl, Variant};

use crate::class_limits::ClassClient;
use crate::hold::{ClassId, HELD_KINDS, Holds, ProxyHolds, ResourceKey};
use crate::secrets::{Recheck, Secrets};
use crate::table::{Answers, Table};
use crate::view::{View, ViewSnapshot};

/// A class and its current view. Members read through it, so that one store publishes a refresh to all of them.
#[derive(Debug)]
pub(crate) struct ClassHandle {
    /// Tells classes apart on pages; never used again by another class.
    number: u64,
    pub(crate) id: ClassId,
    view: ArcSwap<View>,
    /// Answers with the holds of the class.
    held_answers: Mutex<Answers<HeldQuestion>>,
}

/// A type and sequence, of a view, with holds, for proxies of a version with streams of a variant.
type HeldQuestion = (TypeUrl, Seq, (Seq, u64), Seq, Arc<str>, Variant);

static CLASSES: AtomicU64 = AtomicU64::new(0);

impl ClassHandle {
    pub(crate) fn new(id: ClassId, view: Arc<View>) -> Self {
        let number = CLASSES.fetch_add(1, Ordering::Relaxed) + 1;
        Self { number, id, view: ArcSwap::new(view), held_answers: Mutex::default() }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn publish(&self, view: Arc<View>) {
        self.view.store(view);
    }
}

/// Who opened a stream, and in which variant.
#[derive(Debug, Clone)]
pub(crate) struct StreamOpener {
    pub(crate) client: ClassClient,
    pub(crate) variant: Variant,
}

impl StreamOpener {
    /// Inside of the process.
    pub(crate) fn nobody() -> StreamOpener {
        StreamOpener { client: ClassClient::Nobody, variant: Variant::Delta }
    }
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) proxy: Arc<Proxy>,
    opener: StreamOpener,
    pub(crate) notifier: Arc<Notifier>,
    handle: ArcSwap<ClassHandle>,
    /// `None`: the caller is unauthenticated and gets no secrets.
    secrets: Option<Secrets>,
    /// Moves between classes.
    moves: Mutex<MoveHistory>,
    /// Of all proxies.
    holds: SharedHolds,
    /// What the proxy acknowledged last of the resources that it rejects.
    good: Mutex<BTreeMap<ResourceKey, Arc<Resource>>>,
}

pub(crate) type SharedHolds = Arc<ArcSwap<Holds>>;

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
    /// Types that had holds there: the proxy may not have what the tables say.
    held: Kinds,
    /// Every name that the proxy may hold from previous classes, unless its sequence is before `compacted_at`.
    previous_names: BTreeSet<(TypeUrl, Arc<str>)>,
    compacted_at: Seq,
}

impl MoveHistory {
    fn leave(&mut self, view: &ViewSnapshot<'_>, holds: &ProxyHolds, seq: Seq) {
        (self.joined_at, self.moved_at) = (self.moved_at, seq);
        self.previous_tables = view.tables().map(|(kind, table)| (kind, table.clone())).collect();
        self.held = HELD_KINDS.iter().filter(|kind| holds.concerns(*kind)).collect();
        for (kind, table) in &self.previous_tables {
            self.previous_names.extend(table.known_names().map(|name| (*kind, name.clone())));
            self.compacted_at = self.compacted_at.max(table.compacted_at);
        }
    }

    /// Whether the proxy holds this version from the class that it left.
    fn has_sent(&self, kind: TypeUrl, since: Seq, resource: &Resource) -> bool {
        let tables = self.previous_tables.iter().filter(|(of, _)| *of == kind && !self.held.contains(kind));
        since >= self.joined_at && tables.map(|(_, table)| table).any(|table| table.has_sent(since, resource))
    }
}

impl Member {
    pub(crate) fn new(
        proxy: Arc<Proxy>,
        opener: StreamOpener,
        handle: Arc<ClassHandle>,
        notifier: Arc<Notifier>,
        secrets: Option<Secrets>,
        holds: SharedHolds,
    ) -> Self {
        let (moves, good) = (Mutex::default(), Mutex::default());
        Self { proxy, opener, notifier, handle: ArcSwap::new(handle), secrets, moves, holds, good }
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
        moves.leave(&self.handle.load().view().snapshot(), &self.own_holds(), seq);
        self.handle.store(handle);
    }
}

impl Member {
    fn unheld_since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
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
}

impl xds::Class for Member {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let answer = self.unheld_since(kind, since);
        match self.holds_of(kind) {
            None => answer,
            Some(holds) => self.apply_holds(&holds, kind, since, answer),
        }
    }

    fn content_digest(&self, kind: TypeUrl) -> ContentDigest {
        if kind == TypeUrl::Secret && self.secrets.is_some() {
            let all = self.since(kind, 0);
            return ContentDigest::of(&all.changed).at(all.seq);
        }
        if self.holds_of(kind).is_some() {
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
        if self.holds_of(kind).is_some_and(|holds| holds.changed_since(kind, since)) {
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
        if self.holds_of(kind).is_some() {
            return self.has_changes(kind, since).then(|| self.since(kind, since));
        }
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
            _ => {
                let newest = self.handle.load().view().snapshot().named(kind, name)?;
                match self.holds_of(kind) {
                    None => Some(newest),
                    Some(holds) => holds.served(kind, newest),
                }
            }
        }
    }

    fn is_precomputed(&self, kind: TypeUrl, name: &str) -> bool {
        match kind {
            TypeUrl::Endpoints | TypeUrl::Route => self.handle.load().view().snapshot().holds(kind, name),
            _ => true,
        }
    }
}

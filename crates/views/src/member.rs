//! A stream's place in a class. Classes can change under it: a pod that is relabelled moves, and the stream sees one history.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use model::Proxy;
use xds::{Changes, Resource, Seq, TypeUrl};

use crate::view::View;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) proxy: Arc<Proxy>,
    view: ArcSwap<View>,
    /// When it last moved, and every name that it may hold from former classes.
    moved: Mutex<Moved>,
}

#[derive(Debug, Default)]
struct Moved {
    at: Seq,
    left: BTreeSet<(TypeUrl, Arc<str>)>,
}

impl Member {
    pub(crate) fn new(proxy: Arc<Proxy>, view: Arc<View>) -> Self {
        Self { proxy, view: ArcSwap::new(view), moved: Mutex::default() }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The same class, refreshed.
    pub(crate) fn follow(&self, view: Arc<View>) {
        self.view.store(view);
    }

    pub(crate) fn move_to(&self, view: Arc<View>, seq: Seq) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.at = seq;
        moved.left.extend(self.view.load().known().map(|(kind, name)| (kind, name.clone())));
        self.view.store(view);
    }
}

impl xds::Class for Member {
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes> {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let view = self.view.load();
        if since == 0 || since >= moved.at {
            return view.since(kind, since);
        }
        let all = view.since(kind, 0);
        let left = moved.left.iter().filter(|(left, name)| *left == kind && !view.holds(kind, name));
        let removed = left.map(|(_, name)| name.clone()).collect();
        Arc::new(Changes { seq: all.seq.max(moved.at), removed, full: false, ..Changes::clone(&all) })
    }

    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>> {
        self.view.load().named(kind, name)
    }
}

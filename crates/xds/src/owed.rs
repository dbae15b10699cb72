//! What a stream owes a proxy regardless of news: answers to its requests, and load assignments of clusters it warms.
//! Pure.

use std::{collections::HashSet, sync::Arc};

use crate::held::Held;

#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// All that the subscription covers.
    pub(crate) everything: bool,
    /// Sorted, each once. No set: a request may name a hundred thousand, and they are added and taken many at a time.
    pub(crate) names: Vec<Arc<str>>,
    /// Versions that the proxy brought along: equal ones are not sent, and what no longer exists is removed. Empty: it
    /// is unknown which version the proxy holds.
    pub(crate) held: Held,
    /// The proxy waits for a response even if there is nothing to say.
    pub(crate) reply: bool,
}

impl Owed {
    pub(crate) fn everything() -> Owed {
        Owed { everything: true, ..Owed::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty() && !self.reply
    }

    pub(crate) fn add(&mut self, other: Owed) {
        self.everything |= other.everything;
        self.add_names(other.names);
        self.held.add(other.held);
        self.reply |= other.reply;
    }

    pub(crate) fn add_names(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        let before = self.names.len();
        self.names.extend(names);
        if self.names.len() > before {
            // Two sorted runs, mostly: one pass.
            self.names.sort();
            self.names.dedup();
        }
    }

    pub(crate) fn remove_names(&mut self, names: &[&str]) {
        if !self.names.is_empty() && !names.is_empty() {
            let gone: HashSet<&str> = names.iter().copied().collect();
            self.names.retain(|name| !gone.contains(&**name));
        }
    }

    pub(crate) fn retain_names(&mut self, keep: impl Fn(&str) -> bool) {
        self.names.retain(|name| keep(name));
    }

    /// A refused response may have been taken in part: the names are still known, the versions are not.
    pub(crate) fn forget_versions(&mut self) {
        self.held.forget_versions();
    }

    /// Names that are left for the next response, with the versions that the proxy holds.
    pub(crate) fn defer(&mut self, names: Vec<Arc<str>>, held: &Held) {
        if !names.is_empty() {
            self.add_names(names);
            self.held.add(held.clone());
        }
    }

    /// Sent whatever version the proxy holds.
    pub(crate) fn insist(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        if self.held.is_empty() {
            return self.add_names(names);
        }
        let names: Vec<Arc<str>> = names.into_iter().collect();
        self.held.forget(names.iter().map(|name| &**name));
        self.add_names(names);
    }
}

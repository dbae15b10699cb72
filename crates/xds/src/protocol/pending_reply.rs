//! What the server has to send a proxy even if nothing changed: replies to its requests, and load assignments of clusters that it warms.

use std::{collections::HashSet, sync::Arc};

use crate::protocol::initial_versions::InitialVersions;

#[derive(Debug, Default)]
pub(crate) struct PendingReply {
    /// All that the subscription covers.
    pub(crate) everything: bool,
    /// The subscribed names from this one on, in their order: a response left them for the next one.
    pub(crate) from: Option<Arc<str>>,
    /// Sorted and unique. Not a set: a request may name tens of thousands, and they are added and removed many at a time.
    pub(crate) names: Vec<Arc<str>>,
    /// Equal versions are not sent, and what no longer exists is removed. Empty: it is unknown which versions the proxy holds.
    pub(crate) initial_versions: InitialVersions,
    /// The proxy waits for a response even if that is empty.
    pub(crate) reply_required: bool,
}

impl PendingReply {
    pub(crate) fn everything() -> PendingReply {
        PendingReply { everything: true, ..PendingReply::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.everything && self.from.is_none() && self.names.is_empty() && !self.reply_required
    }

    pub(crate) fn add(&mut self, other: PendingReply) {
        self.everything |= other.everything;
        self.from = [self.from.take(), other.from].into_iter().flatten().min();
        self.add_names(other.names);
        self.initial_versions.add(other.initial_versions);
        self.reply_required |= other.reply_required;
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
            let removed: HashSet<&str> = names.iter().copied().collect();
            self.names.retain(|name| !removed.contains(&**name));
        }
    }

    pub(crate) fn retain_names(&mut self, keep: impl Fn(&str) -> bool) {
        self.names.retain(|name| keep(name));
    }

    /// A NACKed response may have been applied in part: the names are still known, the versions are not.
    pub(crate) fn forget_versions(&mut self) {
        self.initial_versions.forget_versions();
    }

    /// Whether it holds all subscribed names from one on that is not behind this one.
    pub(crate) fn reaches(&self, name: &str) -> bool {
        self.everything || self.from.as_ref().is_some_and(|from| **from <= *name)
    }

    /// Adds names that are sent whatever version the proxy holds.
    pub(crate) fn add_any_version(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        if self.initial_versions.is_empty() {
            return self.add_names(names);
        }
        let names: Vec<Arc<str>> = names.into_iter().collect();
        self.initial_versions.forget(names.iter().map(|name| &**name));
        self.add_names(names);
    }
}

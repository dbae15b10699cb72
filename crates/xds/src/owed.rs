//! What a stream owes a proxy regardless of news: answers to its requests, and load assignments of clusters it warms.
//! Pure.

use std::{collections::BTreeSet, sync::Arc};

use crate::held::Held;

#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// All that the subscription covers.
    pub(crate) everything: bool,
    pub(crate) names: BTreeSet<Arc<str>>,
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
        self.names.extend(other.names);
        self.held.extend(other.held);
        self.reply |= other.reply;
    }

    /// A refused response may have been taken in part: the names are still known, the versions are not.
    pub(crate) fn forget_versions(&mut self) {
        if !self.held.is_empty() {
            self.held.map().values_mut().for_each(String::clear);
        }
    }

    /// Names that are left for the next response, with the versions that the proxy holds of them.
    pub(crate) fn defer(&mut self, names: Vec<Arc<str>>, held: &mut Held) {
        if !names.is_empty() && !held.is_empty() {
            let moved = names.iter().filter_map(|name| held.map().remove_entry(&**name));
            self.held.map().extend(moved);
        }
        self.names.extend(names);
    }

    /// Sent whatever version the proxy holds.
    pub(crate) fn insist(&mut self, name: &Arc<str>) {
        if !self.held.is_empty() {
            self.held.map().remove(&**name);
        }
        self.names.insert(name.clone());
    }
}

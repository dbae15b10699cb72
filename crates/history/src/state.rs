//! What a proxy had after a push: the layers of its class in force, or as they ended, with the pushes since then undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use views::LayerKey;
use xds::{Seq, TypeUrl};

use crate::journal::{PastPush, ResourceHistory, VersionChange};
use crate::past_resource::PastResource;
use crate::point::UnknownPoint;

/// By type in push order, then by name.
pub type PastState = BTreeMap<(TypeUrl, Arc<str>), Arc<PastResource>>;

impl ResourceHistory {
    /// `None`: nothing is known of the proxy. Without secrets, and what it requested by a name of its own.
    pub fn state(&self, proxy: &str, seq: Seq) -> Option<Result<PastState, UnknownPoint>> {
        let proxy = self.proxy(proxy)?;
        let Some(stay) = proxy.at(seq) else {
            let since = proxy.stays.first().map_or(0, |stay| stay.since);
            return Some(Err(UnknownPoint::NotConnected(since)));
        };
        let mut all = PastState::new();
        for key in stay.layers {
            match self.layer_state(key, seq) {
                Some(resources) => all.extend(resources),
                None => return Some(Err(UnknownPoint::Forgotten)),
            }
        }
        Some(Ok(all))
    }

    /// What a push changed for a proxy, also by moving it to another class.
    pub fn changes_for(&self, proxy: &str, push: &PastPush) -> Vec<VersionChange> {
        let stays = self.proxy(proxy).map(|proxy| (proxy.at(push.seq), proxy.at(push.seq - 1)));
        match stays {
            Some((Some(now), Some(before))) if now.layers != before.layers => {
                let state = |seq| self.state(proxy, seq).and_then(Result::ok);
                let states = state(push.seq - 1).zip(state(push.seq));
                states.map(|(before, after)| state_changes(&before, &after)).unwrap_or_default()
            }
            Some((Some(now), Some(_))) => push.changes_of(&now.layers).cloned().collect(),
            _ => Vec::new(),
        }
    }

    fn layer_state(&self, key: LayerKey, seq: Seq) -> Option<PastState> {
        let in_force = self.layers().resources(key);
        let mut state: PastState = match in_force {
            Some(resources) => {
                let version = |(kind, resource)| Arc::new(PastResource::new(kind, resource));
                resources.map(version).map(entry).collect()
            }
            None => self.ended(key)?.resources.iter().cloned().map(entry).collect(),
        };
        for push in self.pushes().rev().take_while(|push| push.seq > seq) {
            for change in push.changes_of(&[key]) {
                let (name, _) = entry(change.resource().clone());
                match &change.before {
                    Some(before) => drop(state.insert(name, before.clone())),
                    None => drop(state.remove(&name)),
                }
            }
        }
        Some(state)
    }
}

fn entry(version: Arc<PastResource>) -> ((TypeUrl, Arc<str>), Arc<PastResource>) {
    ((version.kind, version.name.clone()), version)
}

/// By type in push order, then by name.
pub fn state_changes(before: &PastState, after: &PastState) -> Vec<VersionChange> {
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let change = |name| {
        let [before, after] = [before, after].map(|state| state.get(name).cloned());
        let is_same = before.as_ref().map(|it| &it.version) == after.as_ref().map(|it| &it.version);
        (!is_same).then_some(VersionChange { before, after })
    };
    names.into_iter().filter_map(change).collect()
}

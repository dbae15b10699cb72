//! The versions that a proxy had of one resource.

use std::collections::BTreeSet;
use std::sync::Arc;

use xds::{Seq, TypeUrl};

use crate::journal::ResourceHistory;
use crate::past_resource::PastResource;
use crate::point::UnknownPoint;

#[derive(Debug, Clone)]
pub struct PastVersion {
    /// The push that brought it. `None`: it is as old as the history, or as the connection of the proxy.
    pub push: Option<Seq>,
    /// `None`: the proxy did not have the resource.
    pub resource: Option<Arc<PastResource>>,
}

impl ResourceHistory {
    /// The newest is the last. There is at least one. `None`: nothing is known of the proxy.
    pub fn timeline(&self, proxy: &str, kind: TypeUrl, name: &str) -> Option<Result<Vec<PastVersion>, UnknownPoint>> {
        let known = self.proxy(proxy)?;
        let first = known.stays.first().map_or(0, |stay| stay.since).max(self.begin());
        let at = |seq: Seq| {
            let state = self.state(proxy, seq).unwrap_or(Err(UnknownPoint::Forgotten))?;
            Ok(state.get(&(kind, Arc::from(name))).cloned())
        };
        let mut versions = match at(first) {
            Ok(resource) => vec![PastVersion { push: None, resource }],
            // A class that it had was dropped from the history.
            Err(UnknownPoint::Forgotten) => Vec::new(),
            Err(error) => return Some(Err(error)),
        };
        let moves = known.stays.iter().map(|stay| stay.since);
        let points: BTreeSet<Seq> =
            self.pushes().map(|push| push.seq).chain(moves).filter(|seq| *seq > first).collect();
        for seq in points {
            let Some(stay) = known.at(seq) else { continue };
            let resource = if stay.since == seq || versions.is_empty() {
                let Ok(resource) = at(seq) else { continue };
                resource
            } else {
                let mut changes = self.push(seq).into_iter().flat_map(|push| push.changes_of(&stay.layers));
                let named = |version: &Arc<PastResource>| version.kind == kind && *version.name == *name;
                let Some(change) = changes.find(|change| named(change.resource())) else { continue };
                change.after.clone()
            };
            let version = |it: &Option<Arc<PastResource>>| it.as_ref().map(|it| it.version.clone());
            if versions.last().is_none_or(|last| version(&last.resource) != version(&resource)) {
                versions.push(PastVersion { push: Some(seq), resource });
            }
        }
        Some(if versions.is_empty() { Err(UnknownPoint::Forgotten) } else { Ok(versions) })
    }
}

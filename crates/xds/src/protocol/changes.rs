//! What a class answers: the resources that changed after a sequence, and digests of them.

use std::{sync::Arc, time::Instant};

use crate::{Resource, Seq, encoding::response_cache::ChangesMemo, protocol::digest::Digest};

/// A cluster and its load assignment are expected to have one name: when a cluster is sent, the load assignment of
/// that name follows even if it is unchanged, because the proxy warms the cluster until it arrives.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The position that a stream has reached with this.
    pub seq: Seq,
    /// Each name once, with its content at `seq`.
    pub changed: Vec<Arc<Resource>>,
    pub removed: Vec<Arc<str>>,
    /// The history does not reach back to `since` (always so for 0): `changed` is everything, `removed` is empty. For
    /// any other `since` this should be rare: a delta stream with a wildcard is then closed, and the proxy reconnects
    /// with the versions that it holds.
    pub full: bool,
    /// Resources whose newest content is held back: `changed` has other content of the name, or lacks it.
    pub held: Vec<Arc<HeldBack>>,
    /// When the oldest of the changes arrived, for the convergence time. `None`: unknown, nothing is measured.
    pub changed_at: Option<Instant>,
    /// Disjoint answers of which this one is the union, so that their bytes are shared with other unions. Empty: it is no union.
    pub parts: Vec<Arc<Changes>>,
    /// Encoded once for all streams that are sent exactly this. A clone starts empty.
    pub memo: ChangesMemo,
}

/// Content that a proxy is not sent, and why.
#[derive(Debug)]
pub struct HeldBack {
    pub resource: Arc<Resource>,
    pub reason: Arc<str>,
    /// The proxy is sent what the other objects make of the resource. `None`: it is sent nothing new of it.
    pub culprit: Option<Arc<str>>,
}

impl HeldBack {
    /// What is held back comes from these, as `EnvoyFilter shop/lua`, with the patch where it is known.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<str>> {
        let all = self.culprit.is_none().then(|| self.resource.provenance.iter());
        self.culprit.iter().chain(all.into_iter().flatten())
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// Of the names in `changed`.
    pub(crate) fn names_digest(&self) -> Digest {
        *self.memo.names_digest.get_or_init(|| match &self.parts[..] {
            [] => Digest::of(self.changed.iter().map(|resource| &*resource.name)),
            parts => Digest::sum(parts.iter().map(|part| part.names_digest())),
        })
    }

    /// Of the names in `changed` with their versions.
    pub(crate) fn versions_digest<'a>(&'a self) -> Digest {
        let one = |resource: &'a Arc<Resource>| (&*resource.name, &*resource.version);
        *self.memo.versions_digest.get_or_init(|| match &self.parts[..] {
            [] => Digest::of_versions(self.changed.iter().map(one)),
            parts => Digest::sum(parts.iter().map(|part| part.versions_digest())),
        })
    }
}

/// A digest of resources, of their names and of their versions: two sets of resources can be compared without listing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentDigest {
    /// The position of a proxy that holds exactly these.
    pub(crate) seq: Seq,
    pub(crate) count: usize,
    pub(crate) names: Digest,
    pub(crate) versions: Digest,
}

impl ContentDigest {
    pub fn of<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> ContentDigest {
        let one = |resource: &'a Arc<Resource>| ContentDigest {
            seq: 0,
            count: 1,
            names: Digest::of([&*resource.name]),
            versions: Digest::of_versions([(&*resource.name, &*resource.version)]),
        };
        ContentDigest::sum(resources.into_iter().map(one))
    }

    /// The same, with a sequence of at least `seq`.
    pub fn at(self, seq: Seq) -> ContentDigest {
        ContentDigest { seq: self.seq.max(seq), ..self }
    }

    /// Of the union of parts that have no name in common.
    pub fn sum(parts: impl IntoIterator<Item = ContentDigest>) -> ContentDigest {
        parts.into_iter().fold(ContentDigest::default(), |sum, part| ContentDigest {
            seq: sum.seq.max(part.seq),
            count: sum.count + part.count,
            names: Digest::sum([sum.names, part.names]),
            versions: Digest::sum([sum.versions, part.versions]),
        })
    }
}

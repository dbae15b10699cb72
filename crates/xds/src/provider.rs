//! The seam to whatever computes configuration: answers by (class, type, sequence), with shared slices. No protocol.

use std::{any::Any, sync::Arc, time::Instant};

use wire::envoy::config::core::v3::Node;

use crate::{Bell, Caller, Resource, TypeUrl, frame::Prepared, journal::Journal, names::Digest};

/// A position in the one history of a provider, shared by all its classes and types. 0: before everything.
pub type Seq = u64;

pub trait Provider: Send + Sync + 'static {
    /// `false`: streams are refused with UNAVAILABLE, so that a proxy asks another instance or again later.
    fn ready(&self) -> bool;

    /// Called once per stream with the node of its first message, whose metadata has its names in order. The class is released with the last clone of the
    /// answer.
    fn join(&self, node: &Node) -> Result<Joined, Refused>;

    /// The same where answers depend on who asks: the provider, which reads the node, compares it with the caller's identities. `caller`:
    /// `None` on a port that asks nobody.
    fn join_as(&self, _caller: Option<&Caller>, node: &Node) -> Result<Joined, Refused> {
        self.join(node)
    }

    /// Roughly what it holds besides encoded resources, in bytes. Asked for at every look at the metrics.
    fn bytes(&self) -> usize {
        0
    }

    /// Nothing was sent for a while: what is remembered for streams that might ask the same can go.
    fn rest(&self) {}

    /// Where pushes are noted. `None`: nowhere.
    fn journal(&self) -> Option<Arc<Journal>> {
        None
    }
}

/// Proxies that receive identical answers. Called from stream tasks: answers must be ready or quick to make.
/// `Any`: the provider finds its own again.
pub trait Class: Any + Send + Sync {
    /// What happened to this type after `since`; 0: everything there is. Shared by all streams of the class.
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes>;

    /// What `since` would say of everything there is, in short. A stream that comes back asks whether that is what its proxy holds.
    fn tally(&self, kind: TypeUrl) -> Tally {
        let all = self.since(kind, 0);
        Tally::of(&all.changed).at(all.seq)
    }

    /// `false`: that would say nothing. Cheaper to ask, which every stream does for every type.
    fn has_news(&self, kind: TypeUrl, since: Seq) -> bool {
        let changes = self.since(kind, since);
        changes.full || !changes.is_empty()
    }

    /// What happened, if anything did. Every stream asks this for every change that it hears of.
    fn news(&self, kind: TypeUrl, since: Seq) -> Option<Arc<Changes>> {
        self.has_news(kind, since).then(|| self.since(kind, since))
    }

    /// One resource by name, also one that `since` never lists (an empty load assignment or route for an unknown
    /// name). `None`: it does not exist.
    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>>;

    /// `false`: `named` makes the resource for whoever asks, which takes longer than to look it up.
    fn is_ready(&self, _kind: TypeUrl, _name: &str) -> bool {
        true
    }
}

/// A cluster and its load assignment are expected to have one name: when a cluster is sent, the load assignment of
/// that name follows even if it is unchanged, because the proxy warms the cluster until it comes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The position that a stream has reached with this.
    pub seq: Seq,
    /// Each name once, with its content at `seq`.
    pub changed: Vec<Arc<Resource>>,
    pub removed: Vec<Arc<str>>,
    /// The history does not reach back to `since` (always so for 0): `changed` is everything, `removed` is empty. For
    /// any other `since` this should be rare: a delta stream with a wildcard is then closed, and the proxy comes back
    /// with the versions it holds.
    pub full: bool,
    /// When the oldest of the changes arrived, for the time to convergence. `None`: unknown, nothing is measured.
    pub began: Option<Instant>,
    /// Answers of which this one is the sum, so that their bytes are shared with other sums. Empty: it is no sum.
    pub parts: Vec<Arc<Changes>>,
    /// The bytes for all streams that get exactly this. A copy has none.
    pub prepared: Prepared,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// Of the names in `changed`.
    pub(crate) fn names(&self) -> Digest {
        *self.prepared.names.get_or_init(|| match &self.parts[..] {
            [] => Digest::of(self.changed.iter().map(|resource| &*resource.name)),
            parts => Digest::sum(parts.iter().map(|part| part.names())),
        })
    }

    /// Of the names in `changed` with their versions.
    pub(crate) fn versions<'a>(&'a self) -> Digest {
        let one = |resource: &'a Arc<Resource>| (resource.name.as_bytes(), resource.version.as_bytes());
        *self.prepared.versions.get_or_init(|| match &self.parts[..] {
            [] => Digest::of_versions(self.changed.iter().map(one)),
            parts => Digest::sum(parts.iter().map(|part| part.versions())),
        })
    }
}

/// Resources, their names and versions, told from others without being listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The position of whoever holds exactly these.
    pub(crate) seq: Seq,
    pub(crate) count: usize,
    pub(crate) names: Digest,
    pub(crate) versions: Digest,
}

impl Tally {
    pub fn of<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Tally {
        let one = |resource: &'a Arc<Resource>| Tally {
            seq: 0,
            count: 1,
            names: Digest::of([&*resource.name]),
            versions: Digest::of_versions([(resource.name.as_bytes(), resource.version.as_bytes())]),
        };
        Tally::sum(resources.into_iter().map(one))
    }

    /// No earlier than this.
    pub fn at(self, seq: Seq) -> Tally {
        Tally { seq: self.seq.max(seq), ..self }
    }

    /// Of parts that have no name in common, together.
    pub fn sum(parts: impl IntoIterator<Item = Tally>) -> Tally {
        parts.into_iter().fold(Tally::default(), |sum, part| Tally {
            seq: sum.seq.max(part.seq),
            count: sum.count + part.count,
            names: Digest::sum([sum.names, part.names]),
            versions: Digest::sum([sum.versions, part.versions]),
        })
    }
}

#[derive(Clone)]
pub struct Joined {
    pub class: Arc<dyn Class>,
    pub proxy: ProxyInfo,
    /// Rung once the class can answer for a sequence in which something changed for this proxy. The first is 1.
    pub news: Arc<Bell>,
}

/// What the tables, log lines and metrics say of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyInfo {
    /// `pod.namespace`: the third field of the node id.
    pub id: String,
    /// `sidecar`, `router`, ...
    pub kind: String,
    pub namespace: String,
    /// As the proxy says it; empty: unknown.
    pub version: String,
    pub cluster: String,
    /// `region/zone/subzone`.
    pub locality: String,
    /// A gRPC client without a sidecar: it is answered with all the names it watches, not only with the added ones.
    pub proxyless: bool,
}

/// Why a node is not served, as the proxy is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// INVALID_ARGUMENT.
    #[error("{0}")]
    Node(String),
    /// The caller may not speak for it: PERMISSION_DENIED.
    #[error("{0}")]
    Denied(String),
}

//! A class of proxies: the trait by which the protocol asks for resources, by (class, type, sequence). Where classes come from is
//! `server::provider`.

use std::{any::Any, sync::Arc};

use crate::{Changes, ContentDigest, Resource, TypeUrl};

/// A position in the one history of a provider, shared by all its classes and types. 0: before everything.
pub type Seq = u64;

/// Proxies that receive identical answers. Called from stream tasks: answers must be ready or quick to compute.
/// `Any`: the provider can downcast to its own type.
pub trait Class: Any + Send + Sync {
    /// What happened to this type after `since`; 0: everything there is. Shared by all streams of the class.
    fn since(&self, kind: TypeUrl, since: Seq) -> Arc<Changes>;

    /// The digest of everything there is. A stream that reconnects compares it with the versions that its proxy holds.
    fn content_digest(&self, kind: TypeUrl) -> ContentDigest {
        let all = self.since(kind, 0);
        ContentDigest::of(&all.changed).at(all.seq)
    }

    /// Whether `since` would return anything. Cheaper, because every stream asks it for every type.
    fn has_changes(&self, kind: TypeUrl, since: Seq) -> bool {
        let changes = self.since(kind, since);
        changes.full || !changes.is_empty() || !changes.held.is_empty()
    }

    /// `since`, if there is anything. Every stream asks this at every notification.
    fn changes_if_any(&self, kind: TypeUrl, since: Seq) -> Option<Arc<Changes>> {
        self.has_changes(kind, since).then(|| self.since(kind, since))
    }

    /// One resource by name, also one that `since` never lists (an empty load assignment or route for an unknown
    /// name). `None`: it does not exist.
    fn named(&self, kind: TypeUrl, name: &str) -> Option<Arc<Resource>>;

    /// `false`: `named` computes the resource when it is asked for, which takes longer than a lookup.
    fn is_precomputed(&self, _kind: TypeUrl, _name: &str) -> bool {
        true
    }
}

/// What tables, log lines and metrics say of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyInfo {
    /// `pod.namespace`: the third field of the node id.
    pub id: String,
    /// `sidecar`, `router`, ...
    pub kind: String,
    pub namespace: String,
    /// As the proxy reports it; empty: unknown.
    pub version: String,
    pub cluster: String,
    /// `region/zone/subzone`.
    pub locality: String,
    /// A gRPC client without a sidecar: a response holds all the names it watches, not only the added ones.
    pub proxyless: bool,
}

//! The interface to whatever computes configuration: it assigns proxies to classes and notifies streams. No protocol.

use std::net::IpAddr;
use std::sync::Arc;

use wire::envoy::config::core::v3::Node;

use crate::{
    Caller, Class, Journal, Notifier, ProxyInfo, Resource, Seq, TypeUrl, Variant, protocol::culprits::culprits,
};

pub trait Provider: Send + Sync + 'static {
    /// `false`: streams are rejected with UNAVAILABLE, so that a proxy tries another instance, or again later.
    fn ready(&self) -> bool;

    /// Called once per stream with the node of its first message, whose metadata has its keys sorted. The class is released with the
    /// last clone of the returned membership.
    fn join(&self, node: &Node) -> Result<Membership, NodeError>;

    /// The same where answers depend on the caller: the provider, which reads the node, compares it with the caller's identities.
    /// `caller`: `None` on a port without authentication. `address`: of the client, or its network. `variant`: of its stream.
    fn join_as(
        &self,
        _caller: Option<&Caller>,
        _address: IpAddr,
        _variant: Variant,
        node: &Node,
    ) -> Result<Membership, NodeError> {
        self.join(node)
    }

    /// An estimate of its memory besides encoded resources. Called at every scrape of the metrics.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Nothing was sent for a while: what is cached for streams that might ask the same can be dropped.
    fn release_caches(&self) {}

    /// A proxy rejected a response. Called from its stream, so it must be quick.
    fn record_nack(&self, _rejection: &NackReport<'_>) {}

    /// Where pushes are recorded. `None`: nowhere.
    fn journal(&self) -> Option<Arc<Journal>> {
        None
    }
}

/// A proxy as a member of its class.
#[derive(Clone)]
pub struct Membership {
    pub class: Arc<dyn Class>,
    pub proxy: ProxyInfo,
    /// Notified once the class can answer for a sequence in which something changed for this proxy. The first is 1.
    pub notifier: Arc<Notifier>,
}

/// A NACK.
pub struct NackReport<'a> {
    pub class: &'a Arc<dyn Class>,
    pub variant: Variant,
    pub kind: TypeUrl,
    /// As the proxy gives it.
    pub reason: Arc<str>,
    /// Of the response.
    pub resources: &'a [Arc<Resource>],
    /// The proxy has accepted everything up to this sequence.
    pub position: Seq,
}

impl<'a> NackReport<'a> {
    /// The resources that are surely meant.
    pub fn culprits(&self) -> Vec<&'a Arc<Resource>> {
        culprits(&self.reason, self.resources)
    }
}

/// Why a node is not served, as the proxy reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// INVALID_ARGUMENT.
    #[error("{0}")]
    Invalid(String),
    /// The caller may not act for this node: PERMISSION_DENIED.
    #[error("{0}")]
    Denied(String),
    /// Its client has as many classes as it may have: RESOURCE_EXHAUSTED.
    #[error("{0}")]
    TooManyClasses(String),
}

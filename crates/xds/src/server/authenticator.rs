//! Who calls, and whether the caller may act for a node. How callers prove their identity is decided by the type that implements the trait.

use std::{net::IpAddr, sync::Arc};

use http::HeaderMap;
use wire::envoy::config::core::v3::Node;

use crate::{BoxFuture, CallError, Peer};

/// Who opened a stream, authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// SPIFFE IDs; at least one.
    pub identities: Vec<String>,
    /// The address of the client. `None`: not over a network.
    pub address: Option<IpAddr>,
    pub check: IdentityCheck,
}

impl Caller {
    /// Namespace and service account of each identity.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identities.iter().filter_map(|name| {
            let parts: Vec<&str> = name.strip_prefix("spiffe://")?.split('/').collect();
            let [_, "ns", namespace, "sa", account] = parts[..] else { return None };
            (!namespace.is_empty() && !account.is_empty()).then_some((namespace, account))
        })
    }
}

/// How a node is compared with the identities of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityCheck {
    /// No check.
    Off,
    /// The node must be of the namespace and service account of one of them.
    #[default]
    Compatible,
    /// In addition, the registry must know it as a workload of that service account, where it knows workloads.
    Strict,
}

/// A caller and the authenticator that accepted it.
pub(crate) struct AuthenticatedCaller {
    pub(crate) caller: Caller,
    pub(crate) authenticator: Arc<dyn Authenticator>,
}

pub trait Authenticator: Send + Sync + 'static {
    /// The caller; or why authentication failed, for the log: `Unavailable` if the same caller may succeed later. The
    /// caller only learns that it failed.
    fn authenticate<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Caller, CallError>>;

    /// Called when the provider does not let the caller act for this node.
    fn on_denied(&self, caller: &Caller, node: &Node, why: &str);
}

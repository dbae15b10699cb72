//! What a port adds to the streams: TLS, who may come in, and other methods that are served there. How identities are
//! shown, and what they allow, is decided by whoever implements these traits.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use bytes::Bytes;
use http::HeaderMap;
use tokio_rustls::TlsAcceptor;
use wire::{envoy::config::core::v3::Node, google::protobuf::Any};

use crate::Server;

/// A port of the server. The default is plaintext and asks nobody who they are.
#[derive(Clone, Default)]
pub struct Port {
    pub tls: Option<TlsAcceptor>,
    pub door: Option<Arc<dyn Door>>,
    pub methods: Option<Arc<dyn Methods>>,
    /// Serves the methods for secrets alone. `None`: the server of the port does, from what it has for everybody.
    pub secrets: Option<Server>,
    /// `None`: questions about the server itself are refused.
    pub inspect: Option<Arc<dyn Inspect>>,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client's certificate (DER), whose chain was verified in the handshake.
    pub certificate: Option<Bytes>,
}

/// Who opened a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// SPIFFE names; at least one.
    pub identities: Vec<String>,
    /// From where. `None`: over no network.
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
    /// Not at all.
    Off,
    /// It may only be of the namespace and service account of one of them.
    #[default]
    Compatible,
    /// Besides, it must be a workload of that service account wherever workloads are known.
    Strict,
}

/// A caller and the door that let it in.
pub(crate) struct Entered {
    pub(crate) caller: Caller,
    pub(crate) door: Arc<dyn Door>,
}

pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub trait Door: Send + Sync + 'static {
    /// Who calls; or why that could not be told, for the log: `Unavailable` if the same caller may succeed later. The
    /// caller is only told that it failed.
    fn caller<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> Later<'a, Result<Caller, Failure>>;

    /// The provider denied the caller to speak for this node.
    fn denied(&self, caller: &Caller, node: &Node, why: &str);
}

/// Methods with one request and one response.
pub trait Methods: Send + Sync + 'static {
    fn serves(&self, path: &str) -> bool;

    fn call<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap, message: Bytes) -> Later<'a, Result<Bytes, Failure>>;
}

/// Questions about the server itself, asked over a stream: type URLs that begin with `istio.io/debug`. Each is answered
/// once, and nothing is pushed.
pub trait Inspect: Send + Sync + 'static {
    fn inspect<'a>(
        &'a self,
        caller: &'a Caller,
        type_url: &'a str,
        names: &'a [String],
    ) -> Later<'a, Result<Inspected, Failure>>;
}

/// An answer to such a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspected {
    /// Names may be empty.
    pub resources: Vec<(String, Any)>,
    /// Which instance answers: `control_plane.identifier`.
    pub instance: String,
}

/// Why such a method has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    Unauthenticated(String),
    InvalidArgument(String),
    PermissionDenied(String),
    Unavailable(String),
    Internal(String),
}

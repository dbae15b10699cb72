//! A port of the server: TLS, authentication, and other methods that are served there. What these do is decided by the type that implements the
//! traits.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use tokio_rustls::TlsAcceptor;
use wire::google::protobuf::Any;

use crate::{Authenticator, Caller, Server};

/// A port of the server. The default is plaintext without authentication.
#[derive(Clone, Default)]
pub struct ServerPort {
    pub tls: Option<TlsAcceptor>,
    pub authenticator: Option<Arc<dyn Authenticator>>,
    pub methods: Option<Arc<dyn UnaryMethods>>,
    /// Serves the secret discovery service. `None`: the server of the port does, from the resources that all callers share.
    pub secrets: Option<Server>,
    /// `None`: debug requests are rejected.
    pub debug_handler: Option<Arc<dyn DebugHandler>>,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client's certificate (DER), whose chain was verified in the handshake.
    pub certificate: Option<Bytes>,
}

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Unary gRPC methods.
pub trait UnaryMethods: Send + Sync + 'static {
    fn serves(&self, path: &str) -> bool;

    /// Called before the request is read: nothing is buffered for a caller that is rejected.
    fn admit<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> BoxFuture<'a, Result<UnaryCall<'a>, CallError>>;
}

/// Answers the request of a caller that was admitted.
pub type UnaryCall<'a> = Box<dyn FnOnce(Bytes) -> BoxFuture<'a, Result<Bytes, CallError>> + Send + 'a>;

/// Answers debug requests about the server itself: type URLs that begin with `istio.io/debug`. Each is answered
/// once, and nothing is pushed.
pub trait DebugHandler: Send + Sync + 'static {
    fn handle<'a>(
        &'a self,
        caller: &'a Caller,
        type_url: &'a str,
        names: &'a [String],
    ) -> BoxFuture<'a, Result<DebugResponse, CallError>>;
}

/// The answer to a debug request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DebugResponse {
    /// Names may be empty.
    pub resources: Vec<(String, Any)>,
    /// The instance that answers: `control_plane.identifier`.
    pub instance: String,
}

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    Unauthenticated(String),
    InvalidArgument(String),
    PermissionDenied(String),
    Unavailable(String),
    Internal(String),
}

impl CallError {
    pub(crate) fn text(&self) -> &str {
        match self {
            CallError::Unauthenticated(text)
            | CallError::InvalidArgument(text)
            | CallError::PermissionDenied(text)
            | CallError::Unavailable(text)
            | CallError::Internal(text) => text,
        }
    }
}

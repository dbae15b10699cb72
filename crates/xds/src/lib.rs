//! The xDS protocol, and an ADS server for it. Knows nothing of services: a resource is name, version and bytes.
//!
//! - `protocol`: what requests mean and what to send next; pure, without a runtime or a clock.
//! - `encoding`: resources and responses as bytes, shared by the streams that are sent them.
//! - `server`: connections, streams, admission, metrics and log.

mod encoding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod protocol;
mod server;

// What a provider of configuration answers with.
pub use encoding::{response_cache::ChangesMemo, spliced_template::SplicedTemplate};
pub use protocol::{
    changes::{Changes, ContentDigest, HeldBack},
    class::{Class, ProxyInfo, Seq},
    culprits::mentions_name,
    names::Names,
    resource::Resource,
    type_url::{Kinds, TypeUrl},
    variant::Variant,
};
pub use server::{
    notifier::{Notification, Notifier},
    provider::{Membership, NackReport, NodeError, Provider},
};

// The server and its ports.
pub use server::{
    Server,
    authenticator::{Authenticator, Caller, IdentityCheck},
    byte_budget::network,
    options::Options,
    port::{BoxFuture, CallError, DebugHandler, DebugResponse, Peer, ServerPort, UnaryCall, UnaryMethods},
    port_listener::{CountedStream, PortBytes, PortListener},
};

// What is known about streams and pushes.
pub use protocol::watch_info::{SentInfo, SyncStatus, WatchInfo};
pub use server::{
    connections::{Connection, Connections},
    journal::{Journal, Push},
    log_limit::LogLimit,
    memory::Memory,
    metrics::Metrics,
    register::{MetricInfo, Register},
    stage::{Stage, Stages},
};

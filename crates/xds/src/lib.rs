//! The xDS protocol: streams, subscriptions, nonces, ACK and NACK, fan-out of shared bytes. Knows nothing of clusters
//! or listeners: a resource is name + version + bytes.

mod ack;
mod admission;
mod bell;
mod connection;
mod connections;
mod delta;
mod door;
mod frame;
mod grpc;
mod inbound;
mod journal;
mod memory;
mod metrics;
mod nack;
mod names;
mod order;
mod outbound;
mod owed;
mod provider;
mod refusal;
mod request;
mod resource;
mod server;
mod session;
mod sotw;
mod stage;
mod stream;
mod subscription;
mod throttle;
mod type_url;
mod unary;
mod watch;

pub use bell::Bell;
pub use connections::{Connection, Connections, SentInfo, Status, Variant, Watched};
pub use door::{Caller, Door, Failure, Later, Methods, Peer, Port};
pub use frame::Prepared;
pub use journal::{Journal, Push};
pub use memory::Memory;
pub use metrics::Metrics;
pub use names::Names;
pub use provider::{Changes, Class, Joined, Provider, ProxyInfo, Refused, Seq};
pub use resource::Resource;
pub use server::{Options, Server};
pub use stage::{Stage, Stages};
pub use type_url::TypeUrl;

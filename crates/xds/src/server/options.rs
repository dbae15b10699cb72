//! The limits and timeouts of the server.

use std::time::Duration;

use crate::{
    encoding::grpc_message::GRPC_PREFIX,
    server::{byte_budget::BudgetLimits, inbound::MessageLimits},
};

/// Connections that an address may have, however few streams.
const MIN_CONNECTIONS: usize = 16;
/// What an address may have without taking from what all share: ten times what a proxy in a mesh of a thousand services has.
const RESERVED_PER_ADDRESS: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A NACK that may mean any of several routes or extensions is bisected: they are sent again in parts.
    pub bisect_nacks: bool,
    /// istiod's GRPC_KEEPALIVE_INTERVAL.
    pub keepalive_interval: Duration,
    /// istiod's GRPC_KEEPALIVE_TIMEOUT.
    pub keepalive_timeout: Duration,
    /// Of one connection: istiod's ISTIO_GPRC_MAXSTREAMS (its spelling). A proxy has one to three.
    pub max_streams: u32,
    /// Of one request, in bytes: istiod's ISTIO_GPRC_MAXRECVMSGSIZE.
    pub max_message: usize,
    /// From the first byte of a request to its last.
    pub message_timeout: Duration,
    /// Bytes of incomplete requests and unread responses of one address, over all its connections. A connection may have two messages of
    /// the largest size, all addresses together four times as much.
    pub max_buffered_per_address: usize,
    /// Bytes of names that streams of one address subscribe to, where equal sets count once, of initial versions until they are answered, and
    /// of what its nodes have beyond 16 KiB. All addresses together may have eight times as much, without initial versions.
    pub max_kept_per_address: usize,
    /// Bytes of both kinds, beyond 1 MiB of each address, that all addresses share. Each gets at most half of what the others leave.
    pub max_shared: usize,
    /// Open connections of all addresses, with and without streams. An address may have twice as many as streams.
    pub max_connections: usize,
    /// Names that one stream may subscribe to, and that one request may list. Names of 60 bytes fill a message of 4 MiB before that.
    pub max_names: usize,
    /// Streams that are written to at the same time: istiod's PILOT_PUSH_THROTTLE. 0: 15 and 5 for each processor, at most 100.
    pub push_throttle: usize,
    /// Of one address, over all its connections.
    pub max_streams_per_address: usize,
    /// Of one identity from one address, where identities are asked for.
    pub max_streams_per_identity: usize,
    /// New streams of all proxies: istiod's PILOT_MAX_REQUESTS_PER_SECOND. 0: unlimited.
    pub max_requests_per_second: u32,
    /// How often one stream may change its subscriptions, after a burst of ten times as many. Beyond that its
    /// requests are read more slowly. 0: unlimited.
    pub subscription_changes_per_second: u32,
    /// A stream ends whose later messages hold another node than the first. Otherwise later nodes are ignored.
    pub strict_nodes: bool,
    /// How long the removal of a cluster waits for ACKs of the listeners and routes that no longer name it.
    pub removal_grace: Duration,
    /// How long a proxy may take to read one response.
    pub read_timeout: Duration,
    /// How long a stream stays open after the workload of its proxy was deleted.
    pub workload_gone_grace: Duration,
    /// How long a stream may take to send its first request, and a connection to open its first stream.
    pub first_request: Duration,
    /// istiod's --keepaliveMaxServerConnectionAge. `None`: unlimited.
    pub max_age: Option<Duration>,
    /// How long the streams of an old connection may take to ACK what they were sent.
    pub age_grace: Duration,
    /// The window over which connections are closed at shutdown.
    pub drain: Duration,
}

impl Options {
    pub(crate) fn budget(&self) -> BudgetLimits {
        let bytes_per_connection = self.max_message.saturating_add(GRPC_PREFIX).saturating_mul(2);
        let bytes_per_address = self.max_buffered_per_address.max(bytes_per_connection);
        BudgetLimits {
            connections: self.max_connections,
            // So that a client with too many streams gets RESOURCE_EXHAUSTED, not a closed connection.
            connections_per_address: self.max_streams_per_address.saturating_mul(2).max(MIN_CONNECTIONS),
            bytes_per_connection,
            bytes_per_address,
            bytes: bytes_per_address.saturating_mul(4),
            kept_bytes_per_address: self.max_kept_per_address,
            kept_bytes: self.max_kept_per_address.saturating_mul(8),
            reserved_per_address: RESERVED_PER_ADDRESS,
            pool_bytes: self.max_shared,
        }
    }

    pub(crate) fn messages(&self) -> MessageLimits {
        MessageLimits { size: self.max_message, time: self.message_timeout }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bisect_nacks: false,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_streams: 100,
            max_message: 4 << 20,
            message_timeout: Duration::from_secs(10),
            max_buffered_per_address: 32 << 20,
            max_kept_per_address: 32 << 20,
            max_shared: 96 << 20,
            max_connections: usize::MAX,
            max_names: 1 << 16,
            push_throttle: 100,
            max_streams_per_address: 50_000,
            max_streams_per_identity: 20_000,
            max_requests_per_second: 0,
            subscription_changes_per_second: 50,
            strict_nodes: false,
            removal_grace: Duration::from_secs(5),
            read_timeout: Duration::from_secs(300),
            workload_gone_grace: Duration::from_secs(60),
            first_request: Duration::from_secs(10),
            max_age: None,
            age_grace: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

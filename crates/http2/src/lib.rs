//! The server side of HTTP/2 (RFC 9113) for tens of thousands of connections, each with one or a few long-lived streams that are idle
//! most of the time: subscriptions, watches, bidirectional gRPC streams.
//!
//! # Why it exists
//!
//! HTTP/2 libraries keep 24 to 40 KB of buffers for each connection, however idle it is, and write each frame by itself. This crate
//!
//! * keeps no buffers at rest: the read buffer belongs to the thread, and the write queue is freed when it is empty. A connection keeps
//!   an incomplete frame, if there is one, and the HPACK dynamic table (at most 4 KiB);
//! * writes whatever is queued, frame headers and payloads of all streams, with one system call. Payloads are shared [`bytes::Bytes`]
//!   and are not copied, unless the whole write is short;
//! * runs a connection, its streams and their handlers as one task, in which only streams that were woken are polled.
//!
//! It passes the 145 tests of h2spec, including those of HPACK (RFC 7541).
//!
//! The crate `h2` could replace it once it allows small buffers that are released at rest, and writes several frames in one call.
//!
//! # What it does not do
//!
//! * the client role;
//! * server push: PUSH_PROMISE is never sent, and received it is a connection error;
//! * priorities: PRIORITY frames are validated and ignored, streams take turns of at most 64 KiB;
//! * HTTP/1.1, the upgrade from it, and the CONNECT method (with or without RFC 8441);
//! * trailers of requests: they are validated and dropped;
//! * HPACK compression of responses: fields are encoded by the static table or as literals, so that there is no encoder state;
//! * TLS and accepting: a connection is served on any [`AsyncRead`](tokio::io::AsyncRead) + [`AsyncWrite`](tokio::io::AsyncWrite).
//!
//! # How to use it
//!
//! [`ServerConnection::new`] takes the socket, a [`ConnectionConfig`] and a function from `Request<RequestBody>` to a future of
//! `Response<B>`, where `B` is a [`ResponseBody`]. The connection is a future; spawn it, or poll it within a task of your own.
//!
//! A peer cannot make the server work or allocate without bound: header lists, CONTINUATION frames, open streams, unread data and
//! queued replies are limited, and actions that cost the peer less than the server (rapid resets, empty frames) draw on a token bucket.
#![warn(missing_docs)]

mod abuse_budget;
pub mod clock;
mod connection;
mod connection_state;
mod frame;
mod frame_reader;
mod frame_writer;
mod hpack;
mod keepalive;
mod ready_queue;
mod receive;
mod request;
mod request_body;
mod send;
mod settings;
mod stream;
mod streams;

pub use connection::ServerConnection;
pub use frame::ErrorCode;
pub use request_body::{IncompleteRequest, RequestBody};
pub use stream::ResponseBody;

use std::{io, time::Duration};

/// Limits and timeouts of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// SETTINGS_MAX_CONCURRENT_STREAMS: further streams are refused with REFUSED_STREAM.
    pub max_concurrent_streams: u32,
    /// SETTINGS_MAX_HEADER_LIST_SIZE: bytes of the names and values of one request, plus 32 for each field. A larger request is answered
    /// with status 431.
    pub max_header_list_size: u32,
    /// SETTINGS_INITIAL_WINDOW_SIZE: bytes that the peer may send on one stream before they are read.
    pub stream_window: u32,
    /// The same for all streams of the connection together, at least 65,535.
    pub connection_window: u32,
    /// Time without frames from the peer after which it is sent a PING.
    pub keepalive_interval: Duration,
    /// Time for the acknowledgement of that PING. After it the connection fails with [`ConnectionError::KeepaliveTimeout`].
    pub keepalive_timeout: Duration,
}

/// Why a connection ended other than by a graceful shutdown.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Reading or writing failed.
    #[error("i/o error: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection while streams were open.
    #[error("peer closed the connection while streams were open")]
    PeerClosed,
    /// The peer did not acknowledge a PING in time.
    #[error("keepalive timeout")]
    KeepaliveTimeout {
        /// The number of streams that were open.
        streams: usize,
    },
    /// A connection error (RFC 9113, 5.4.1) of the peer: it was sent GOAWAY with this code.
    #[error("connection error: {0}")]
    Protocol(ErrorCode),
}

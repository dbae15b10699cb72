//! The server's side of an HTTP/2 connection, made for tens of thousands of them with one long stream each: at rest a connection has
//! no buffers, and what it sends goes from shared slices to the socket in one call. Leaves out what calls mean, clients, pushes,
//! priorities and HTTP/1.

pub mod clock;
mod connection;
mod frame;
mod hpack;
mod incoming;
mod inlet;
mod keepalive;
mod outlet;
mod patience;
mod protocol;
mod ready;
mod received;
mod request;
mod sending;
mod settings;
mod stream;
mod streams;

pub use connection::Connection;
pub use frame::Reason;
pub use incoming::{BrokeOff, Incoming};
pub use stream::Call;

use std::{io, time::Duration};

/// What a connection allows its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At a time.
    pub streams: u32,
    /// The headers of one request, in bytes: names, values and 32 for each.
    pub headers: u32,
    /// What the peer may send ahead of the reading, in bytes: on one stream, and on all.
    pub stream_window: u32,
    pub connection_window: u32,
    /// After this long without a word from the peer it is pinged; who does not answer in time is taken for dead.
    pub ping_after: Duration,
    pub ping_patience: Duration,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the peer left while streams were open")]
    Left,
    #[error("the peer does not answer")]
    Silent { streams: usize },
    #[error("the peer broke the protocol: {0}")]
    Refused(Reason),
}

//! The state of one type on one stream as debug pages show it. Data only.

use std::{sync::Arc, time::SystemTime};

use crate::{Names, Seq, TypeUrl};

/// One type on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchInfo {
    pub kind: TypeUrl,
    pub wildcard: bool,
    /// Names that were subscribed to one by one.
    pub names: Names,
    /// The last response. `None`: nothing was sent yet.
    pub sent: Option<SentInfo>,
    /// Nothing had to be sent: the proxy reconnected with the current versions.
    pub resumed: bool,
    /// The proxy has accepted everything that concerns it up to this sequence. 0: nothing yet.
    pub position: Seq,
    /// The nonce of the last ACKed response. `None`: nothing was ACKed yet.
    pub acked: Option<Arc<str>>,
    /// Why the last response was NACKed; kept until the next ACK. `None`: it was not.
    pub last_error: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentInfo {
    pub nonce: Arc<str>,
    pub version: Seq,
    pub at: SystemTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStatus {
    NotSent,
    /// Sent, and neither ACKed nor NACKed yet.
    Stale,
    /// The proxy ACKed the last response, or reconnected with the current versions.
    Synced,
    Error,
}

impl WatchInfo {
    pub fn status(&self) -> SyncStatus {
        match (&self.sent, &self.last_error) {
            (None, _) if self.resumed => SyncStatus::Synced,
            (None, _) => SyncStatus::NotSent,
            (_, Some(_)) => SyncStatus::Error,
            (Some(sent), None) if self.acked.as_ref() == Some(&sent.nonce) => SyncStatus::Synced,
            _ => SyncStatus::Stale,
        }
    }
}

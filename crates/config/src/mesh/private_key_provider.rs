//! Hardware acceleration of private key operations in proxies.

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::kinds::one_of::oneof_message;

oneof_message! {
    pub enum PrivateKeyProvider {
        /// Written as `{}`.
        Unset,
        Cryptomb(PollingKeyProvider) = "cryptomb",
        Qat(PollingKeyProvider) = "qat",
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PollingKeyProvider {
    pub poll_delay: Option<Duration>,
    /// Whether the proxy falls back to software. `None`: it does not.
    pub fallback: Option<bool>,
}

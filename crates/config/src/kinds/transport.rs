//! The transport protocol of a port, and port numbers, as Kubernetes kinds write them.

use serde::{Deserialize, Deserializer, de};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

/// A port number, which is never 0.
pub(crate) fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer)? {
        0 => Err(de::Error::custom("port 0 cannot be used; write a number from 1 to 65535")),
        port => Ok(port),
    }
}

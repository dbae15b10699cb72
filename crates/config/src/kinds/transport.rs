//! The transport protocol of a port, and port numbers, as Kubernetes kinds write them.

use std::fmt;

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
    deserializer.deserialize_any(PortVisitor)
}

struct PortVisitor;

impl de::Visitor<'_> for PortVisitor {
    type Value = u16;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port number from 1 to 65535")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u16, E> {
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        port.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}

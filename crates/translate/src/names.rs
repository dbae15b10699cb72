//! Names on the wire that tools parse: clusters and listeners. Route names are in `route`.

use std::fmt;
use std::str::FromStr;

use config::host::Host;
use thiserror::Error;

pub(crate) const BLACK_HOLE: &str = "BlackHoleCluster";
pub(crate) const PASSTHROUGH: &str = "PassthroughCluster";
pub(crate) const INBOUND_PASSTHROUGH: &str = "InboundPassthroughCluster";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterName {
    Outbound {
        port: u16,
        subset: String,
        host: Host,
    },
    /// Of a gateway with SNI passthrough: the cluster name is the SNI.
    Sni {
        port: u16,
        subset: String,
        host: Host,
    },
    Inbound {
        port: u16,
    },
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a cluster name; it is direction|port|subset|host")]
pub struct NotAClusterName(String);

impl ClusterName {
    pub fn outbound(port: u16, host: &Host) -> Self {
        Self::Outbound { port, subset: String::new(), host: host.clone() }
    }

    /// The SNI of mutual TLS: the form that is a DNS name.
    pub fn sni(&self) -> String {
        match self {
            Self::Outbound { port, subset, host } | Self::Sni { port, subset, host } => {
                ["outbound_.", &port.to_string(), "_.", subset, "_.", host.as_str()].concat()
            }
            Self::Inbound { port } => format!("inbound_.{port}_._."),
        }
    }

    /// The text in one allocation: `to_string` would grow it piece by piece.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Outbound { port, subset, host } => {
                ["outbound|", &port.to_string(), "|", subset, "|", host.as_str()].concat()
            }
            Self::Sni { .. } => self.sni(),
            Self::Inbound { port } => ["inbound|", &port.to_string(), "||"].concat(),
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl FromStr for ClusterName {
    type Err = NotAClusterName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || NotAClusterName(text.chars().take(200).collect());
        let (separator, sni) = if text.starts_with("outbound_.") { ("_.", true) } else { ("|", false) };
        let parts: Vec<&str> = text.splitn(4, separator).collect();
        let [direction, port, subset, host] = parts[..] else { return Err(bad()) };
        let port = port.parse().map_err(|_| bad())?;
        match direction {
            "outbound" if !host.is_empty() && sni => {
                Ok(Self::Sni { port, subset: subset.to_owned(), host: Host::new(host) })
            }
            "outbound" if !host.is_empty() && !host.contains('|') => {
                Ok(Self::Outbound { port, subset: subset.to_owned(), host: Host::new(host) })
            }
            "inbound" if subset.is_empty() && host.is_empty() => Ok(Self::Inbound { port }),
            _ => Err(bad()),
        }
    }
}

/// Colons of IPv6 addresses stay: tools split at the last underscore.
pub(crate) fn listener_name(address: &str, port: u16) -> String {
    [address, "_", &port.to_string()].concat()
}

/// Statistics names end in a delimiter, so that Envoy keeps the dots inside them.
pub(crate) fn stat_name(name: &str) -> String {
    [name, ";"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_written() {
        for text in
            ["outbound|80||a.b.svc.cluster.local", "outbound|9090|v1|a.b", "inbound|8080||", "outbound_.80_.v1_.a.b"]
        {
            assert_eq!(text.parse::<ClusterName>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn rejects_malformed_names() {
        for text in [
            "",
            "outbound|80|",
            "outbound|x||a",
            "outbound|70000||a",
            "inbound|80||a",
            "sideways|80||a",
            "outbound|80||",
            "outbound|80||a|b",
            "outbound_.80_._.",
            "outbound_.x_._.a",
        ] {
            assert!(text.parse::<ClusterName>().is_err(), "{text}");
        }
    }
}

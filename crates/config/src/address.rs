//! Addresses in texts: IP addresses, and names where both are allowed, with errors that quote what was found.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// An IP address as Kubernetes writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpText(pub(crate) IpAddr);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an IP address; write it like 10.0.0.1 or fd00::1")]
pub(crate) struct NotAnIp(String);

impl FromStr for IpText {
    type Err = NotAnIp;

    fn from_str(text: &str) -> Result<IpText, NotAnIp> {
        text.parse().map(IpText).map_err(|_| NotAnIp(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for IpText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IpText, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// An IP address or a DNS name, kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressText(pub(crate) String);

impl<'de> Deserialize<'de> for AddressText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AddressText, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.parse::<IpAddr>().is_ok() || is_dns_name(&text) {
            Ok(AddressText(text))
        } else {
            Err(de::Error::custom(NotAnIp(text)))
        }
    }
}

/// The last part of a DNS name is never a number, so that a broken IPv4 address is no name.
fn is_dns_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |l: &str| !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    text.split('.').all(label) && text.rsplit('.').next().is_some_and(|l| !l.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_ip_address_is_no_name() {
        for name in ["a", "a.b", "a.b.", "1.2.3.com", "_srv.a"] {
            assert!(is_dns_name(name), "{name}");
        }
        for broken in ["", ".", "10.0.0.256", "10.0.0", "a..b", "a b", "1"] {
            assert!(!is_dns_name(broken), "{broken}");
        }
    }
}

//! Ports, addresses and protocols as istiod accepts them in objects. Each function returns an error text.

use std::net::IpAddr;

use ipnet::IpNet;

pub(super) const UNIX: &str = "unix://";

pub(super) fn port_fault(port: u32) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| format!("{port} is not a port; use 1 to 65535"))
}

pub(super) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

pub(super) fn ip_fault(text: &str) -> Option<String> {
    (!is_ip(text)).then(|| format!("{text:?} is not an IP address; write it like 10.0.0.1 or fd00::1"))
}

/// An address or a CIDR range.
pub(super) fn subnet_fault(text: &str) -> Option<String> {
    let good = if text.contains('/') { text.parse::<IpNet>().is_ok() } else { is_ip(text) };
    (!good).then(|| format!("{text:?} is no address and no range of addresses; write it like 10.0.0.1 or 10.0.0.0/8"))
}

/// After `unix://`: an absolute path, or `@` and a name.
pub(super) fn socket_fault(path: &str) -> Option<String> {
    let good = path.starts_with('@') || path.starts_with('/') && !path.ends_with('/');
    (!good).then(|| format!("{path:?} is not the path of a socket; write unix:///path/to/file or unix://@name"))
}

/// A bind address.
pub(super) fn bind_fault(bind: &str) -> Option<String> {
    if bind.is_empty() { None } else { ip_fault(bind) }
}

/// The transport of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Http,
    /// HTTPS counts here: the proxy sees only TLS.
    Tls,
    Tcp,
    Udp,
}

impl Family {
    /// `None`: not a protocol.
    pub(super) fn of(protocol: &str) -> Option<Family> {
        Some(match protocol.to_ascii_lowercase().as_str() {
            "http" | "http2" | "http_proxy" | "grpc" | "grpc-web" => Family::Http,
            "https" | "tls" => Family::Tls,
            "tcp" | "mongo" | "redis" | "mysql" => Family::Tcp,
            "udp" => Family::Udp,
            _ => return None,
        })
    }
}

const PROTOCOLS: &str = "HTTP, HTTP2, HTTP_PROXY, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, REDIS, MYSQL, UDP";

/// An empty protocol is detected from the traffic.
pub(super) fn protocol_fault(protocol: &str) -> Option<String> {
    if protocol.is_empty() { None } else { declared_protocol_fault(protocol) }
}

pub(super) fn declared_protocol_fault(protocol: &str) -> Option<String> {
    Family::of(protocol).is_none().then(|| format!("{protocol:?} is not a protocol; known are {PROTOCOLS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fault: fn(&str) -> Option<String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(fault(text), None, "{text}");
        }
        for text in bad {
            assert!(fault(text).is_some(), "{text}");
        }
    }

    #[test]
    fn ports() {
        assert_eq!((port_fault(1), port_fault(65535)), (None, None));
        assert!(port_fault(0).is_some() && port_fault(65536).is_some());
    }

    #[test]
    fn addresses_and_ranges() {
        check(ip_fault, &["10.0.0.1", "::1"], &["", "10.0.0", "a.b", "10.0.0.0/8"]);
        check(subnet_fault, &["10.0.0.1", "10.0.0.1/8", "fd00::/8"], &["", "10.0.0.0/33", "10.0.0.0/8/8", "x"]);
        check(bind_fault, &["", "0.0.0.0"], &["unix:///a", "localhost"]);
    }

    #[test]
    fn sockets() {
        check(socket_fault, &["@name", "/run/a.sock"], &["", "run/a", "/run/"]);
    }

    #[test]
    fn protocols() {
        check(protocol_fault, &["", "http", "GRPC-Web", "MySQL"], &["http3", "ftp"]);
        assert_eq!(Family::of("HTTPS"), Some(Family::Tls));
    }
}

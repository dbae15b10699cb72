//! The protocol of a port, and how a Service port declares it. Translation decides how each is served.

use config::kinds::transport::Transport;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Http,
    Http2,
    Grpc,
    GrpcWeb,
    /// An egress listener that is an HTTP proxy for the application.
    HttpProxy,
    Https,
    Tls,
    Tcp,
    Mongo,
    Mysql,
    Redis,
    Udp,
    /// Not declared: the proxy sniffs the protocol.
    Auto,
}

/// Ports of server-first protocols: sniffing would wait for a client that waits for the server.
const SERVER_FIRST: [u16; 4] = [25, 53, 3306, 27017];

impl Protocol {
    /// By name, as in `appProtocol`, in the prefix of a port's name, or in an Istio port; case-insensitive.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "http" => Self::Http,
            "http2" => Self::Http2,
            "grpc" => Self::Grpc,
            "grpc-web" => Self::GrpcWeb,
            "http_proxy" => Self::HttpProxy,
            "https" => Self::Https,
            "tls" => Self::Tls,
            "tcp" => Self::Tcp,
            "mongo" => Self::Mongo,
            "mysql" => Self::Mysql,
            "redis" => Self::Redis,
            "udp" => Self::Udp,
            _ => return None,
        })
    }

    /// As istiod decides: transport, `appProtocol`, name prefix, well-known port, else detection.
    /// Pinned by parity cases services-app-protocol, services-port-names and services-well-known-ports.
    pub fn of_service_port(transport: Transport, app_protocol: Option<&str>, name: &str, port: u16) -> Self {
        if transport == Transport::Udp {
            return Self::Udp;
        }
        if let Some(declared) = app_protocol {
            return match declared {
                "kubernetes.io/h2c" => Self::Http2,
                "kubernetes.io/ws" => Self::Http,
                "kubernetes.io/wss" => Self::Https,
                other => Self::from_prefix(other).unwrap_or_else(|| Self::undeclared(port)),
            };
        }
        Self::from_prefix(name).unwrap_or_else(|| Self::undeclared(port))
    }

    fn from_prefix(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        // A bare prefix, as in istiod: it contains a dash itself, so that it cannot be split at one.
        if lower.starts_with("grpc-web") {
            return Some(Self::GrpcWeb);
        }
        Self::named(lower.split('-').next().unwrap_or_default())
    }

    fn undeclared(port: u16) -> Self {
        if SERVER_FIRST.contains(&port) { Self::Tcp } else { Self::Auto }
    }

    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::Grpc | Self::GrpcWeb | Self::HttpProxy)
    }

    pub fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc | Self::GrpcWeb)
    }

    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::GrpcWeb)
    }

    /// The first bytes from a client name its host (HTTP authority or SNI).
    pub fn names_its_host(self) -> bool {
        matches!(self, Self::Http | Self::Http2 | Self::Grpc | Self::Tls)
    }

    /// Served as opaque TCP.
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Https | Self::Tls | Self::Mongo | Self::Mysql | Self::Redis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(app: Option<&str>, name: &str, port: u16, want: Protocol) {
        assert_eq!(Protocol::of_service_port(Transport::Tcp, app, name, port), want, "{app:?} {name} {port}");
    }

    #[test]
    fn the_part_before_the_dash_decides() {
        check(None, "http-web", 80, Protocol::Http);
        check(None, "HTTP2-x", 80, Protocol::Http2);
        check(None, "grpc-web-api", 80, Protocol::GrpcWeb);
        check(None, "grpc-website", 80, Protocol::GrpcWeb);
        check(None, "httpx", 80, Protocol::Auto);
    }

    #[test]
    fn app_protocol_beats_the_name() {
        check(Some("tcp"), "http", 80, Protocol::Tcp);
        check(Some("kubernetes.io/h2c"), "tcp", 80, Protocol::Http2);
        check(Some("unknown"), "http-web", 80, Protocol::Auto);
        check(Some("grpc-websocket"), "x", 80, Protocol::GrpcWeb);
    }

    #[test]
    fn servers_that_speak_first_are_not_sniffed() {
        check(None, "db", 3306, Protocol::Tcp);
        check(None, "", 53, Protocol::Tcp);
    }
}

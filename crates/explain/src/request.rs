//! What is known about a request: what its sender writes, and what Envoy sees of it on the way.

use std::net::IpAddr;

use serde_json::{Map, Value};

/// The request whose path through the proxies is explained.
#[derive(Debug, Clone)]
pub struct ExplainedRequest {
    /// As the application names it, without a port.
    pub host: String,
    pub port: u16,
    /// What the host resolves to. `None`: found in the listeners, else unknown.
    pub address: Option<IpAddr>,
    pub payload: Payload,
    pub token: Token,
    /// `None`: unknown, unless the client's proxy says it.
    pub source: Option<IpAddr>,
    /// The application speaks TLS itself, with this server name.
    pub server_name: Option<String>,
    /// The identity in the certificate that the application itself presents: `None` if it has none.
    pub certificate: Option<String>,
}

#[derive(Debug, Clone)]
pub enum Payload {
    Http {
        method: String,
        path: String,
        headers: Vec<(String, String)>,
    },
    /// Bytes that are not HTTP.
    Tcp,
}

/// What is known about the JWT of the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Unknown,
    Absent,
    /// It is valid and has these claims, and no others.
    Valid(Map<String, Value>),
}

/// An HTTP request as a proxy has it. Names of headers are in lower case; a value of `None` is unknown.
#[derive(Debug, Clone)]
pub(crate) struct HttpMessage {
    pub(crate) method: String,
    pub(crate) authority: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) scheme: &'static str,
    pub(crate) headers: Vec<(String, Option<String>)>,
}

/// Headers that proxies and tracers add, whose content nobody can predict.
const GENERATED: [&str; 5] =
    ["x-request-id", "x-forwarded-for", "x-forwarded-client-cert", "traceparent", "tracestate"];

/// A header of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum HeaderValue {
    Known(String),
    Absent,
    Unknown,
}

impl HttpMessage {
    pub(crate) fn path_without_query(&self) -> &str {
        self.path.split(['?', '#']).next().unwrap_or_default()
    }

    /// The first value of each name counts, as in Envoy. Percent-encoding stays.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        let mut pairs = query.split('#').next().unwrap_or_default().split('&');
        pairs.find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        })
    }

    pub(crate) fn header(&self, name: &str) -> HeaderValue {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            ":method" => return HeaderValue::Known(self.method.clone()),
            ":authority" | "host" => return HeaderValue::Known(self.authority.clone()),
            ":path" => return HeaderValue::Known(self.path.clone()),
            ":scheme" => return HeaderValue::Known(self.scheme.to_owned()),
            _ => {}
        }
        let values: Vec<&Option<String>> =
            self.headers.iter().filter(|(key, _)| *key == name).map(|(_, value)| value).collect();
        let known: Option<Vec<&str>> = values.iter().map(|value| value.as_deref()).collect();
        match known {
            None => HeaderValue::Unknown,
            Some(known) if !known.is_empty() => HeaderValue::Known(known.join(",")),
            Some(_) if name == "x-forwarded-proto" => HeaderValue::Known(self.scheme.to_owned()),
            Some(_)
                if GENERATED.contains(&name.as_str()) || name.starts_with("x-b3-") || name.starts_with("x-envoy-") =>
            {
                HeaderValue::Unknown
            }
            Some(_) => HeaderValue::Absent,
        }
    }
}

/// A connection as the proxy that accepts it sees it.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) security: Security,
    /// Its content is HTTP, which a listener filter can detect if it is not encrypted.
    pub(crate) is_http: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Security {
    Plaintext,
    Tls { server_name: Option<String>, alpn: Vec<String>, certificate: PeerCertificate },
}

/// What the client of a TLS connection can present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PeerCertificate {
    None,
    Uri(String),
    Unknown,
}

impl Connection {
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.security {
            Security::Tls { server_name, .. } => server_name.as_deref(),
            Security::Plaintext => None,
        }
    }
}

/// What matchers may read.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) connection: &'a Connection,
    /// `None`: bytes.
    pub(crate) http: Option<&'a HttpMessage>,
    pub(crate) claims: &'a Claims,
    /// The client as XFF names it.
    pub(crate) remote: Option<IpAddr>,
}

/// The payload of the JWT, as the filter `envoy.filters.http.jwt_authn` leaves it in dynamic metadata.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Claims {
    Unknown,
    Absent,
    Known(Map<String, Value>),
}

//! Explains the path of one request through the proxies of a mesh: an evaluator of Envoy's configuration, over the resources that the proxies
//! have. It knows no Istio object; what it says of them stands in the resources. It sends nothing and opens no socket.

mod address_match;
mod cluster;
mod explanation;
mod filter_chain;
mod forward;
mod fraction;
mod header_match;
mod http_filter;
mod http_manager;
mod jwt;
mod listener;
mod metadata_match;
mod network_filter;
mod path;
mod rbac;
mod request;
mod resources;
mod route_action;
mod route_choice;
mod route_match;
mod text;
mod text_match;
mod tls;
mod truth;
mod uri_template;
mod virtual_host;
mod walk;

use std::net::IpAddr;
use std::sync::Arc;

pub use explanation::{Explanation, HopSide, HopStep, RequestEnding, RequestHop, RequestOutcome, RequestVerdict};
pub use request::{ExplainedRequest, Payload, Token};
pub use resources::{ExplainedProxy, ProxyResources, ResourceError};

use explanation::Course;
use forward::Destination;
use request::{Connection, HttpMessage, PeerCertificate, Security};
use walk::{Arrival, Walk};

/// The way of a request out of the application beside `from`, or, if it is a gateway's proxy, into that gateway from outside.
/// `proxy_at` finds the resources of the proxy at an address; `None` if there is no proxy, or nothing is known of it.
pub fn explain(
    request: &ExplainedRequest,
    from: &ProxyResources,
    side: HopSide,
    proxy_at: &mut dyn FnMut(IpAddr) -> Option<Arc<ProxyResources>>,
) -> Explanation {
    let mut walk = Walk { proxy_at, token: &request.token, hops: Vec::new(), host: &request.host };
    let mut course = Course::new();
    walk.hop(&mut course, from, side, &arrival(request, from, side));
    explanation::concluded(walk.hops, course.endings)
}

fn arrival(request: &ExplainedRequest, from: &ProxyResources, side: HopSide) -> Arrival {
    let destination = match side {
        HopSide::Client => request.address.or_else(|| listener::address_of(from, &request.host, request.port)),
        HopSide::Gateway | HopSide::Server => request.address,
    };
    let security = match &request.server_name {
        None => Security::Plaintext,
        Some(name) => Security::Tls {
            server_name: Some(name.clone()),
            alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            certificate: request.certificate.clone().map_or(PeerCertificate::None, PeerCertificate::Uri),
        },
    };
    let http = match &request.payload {
        Payload::Tcp => None,
        Payload::Http { method, path, headers } => Some(message(request, method, path, headers)),
    };
    let source = request.source.or(from.proxy.address.filter(|_| side == HopSide::Client));
    let connection = Connection { source, destination, port: request.port, security, is_http: http.is_some() };
    Arrival { connection, http, destination: Destination::default(), at: None }
}

fn message(request: &ExplainedRequest, method: &str, path: &str, headers: &[(String, String)]) -> HttpMessage {
    let default_port = if request.server_name.is_some() { 443 } else { 80 };
    let named = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host") || name == ":authority");
    let authority = match named {
        Some((_, host)) => host.clone(),
        None if request.port == default_port => request.host.clone(),
        None => format!("{}:{}", request.host, request.port),
    };
    let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host") && !name.starts_with(':'));
    HttpMessage {
        method: method.to_owned(),
        authority,
        path: path.to_owned(),
        scheme: "http",
        headers: others.map(|(name, value)| (name.to_ascii_lowercase(), Some(value.clone()))).collect(),
    }
}

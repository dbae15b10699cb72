//! VirtualService: routes of hosts. Matches and actions are in their own files; delegation is in `model`.
//! A field that is `None` was not set.

mod http_action;
mod http_match;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::port::PortSelector;
use crate::duration::Duration;
use crate::labels::Labels;

pub use http_action::{
    AbortError, BodyBytes, CorsPolicy, DelayTime, Delegate, GRPC_STATUS, HttpBody, HttpDirectResponse, HttpFaultAbort,
    HttpFaultDelay, HttpFaultInjection, HttpRedirect, HttpRetry, HttpRewrite, RedirectPort, RedirectPortSelection,
    RegexRewrite, UnmatchedPreflights,
};
pub use http_match::HttpMatchRequest;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualService {
    pub hosts: Vec<String>,
    /// Empty means `["mesh"]`.
    pub gateways: Vec<String>,
    pub http: Vec<HttpRoute>,
    pub tls: Vec<TlsRoute>,
    pub tcp: Vec<TcpRoute>,
    pub export_to: Vec<String>,
}

/// Rarely used fields are boxed: each route is in memory twice, as written and resolved.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRoute {
    pub name: String,
    /// Alternatives; empty matches every request.
    #[serde(rename = "match")]
    pub matches: Vec<HttpMatchRequest>,
    pub route: Vec<HttpRouteDestination>,
    pub redirect: Option<Box<HttpRedirect>>,
    pub direct_response: Option<Box<HttpDirectResponse>>,
    pub delegate: Option<Box<Delegate>>,
    pub rewrite: Option<Box<HttpRewrite>>,
    pub timeout: Option<Duration>,
    pub retries: Option<Box<HttpRetry>>,
    pub fault: Option<Box<HttpFaultInjection>>,
    pub mirror: Option<Box<Destination>>,
    pub mirrors: Vec<HttpMirrorPolicy>,
    /// Deprecated spelling of `mirror_percentage`.
    pub mirror_percent: Option<u32>,
    pub mirror_percentage: Option<Percent>,
    pub cors_policy: Option<Box<CorsPolicy>>,
    pub headers: Option<Box<Headers>>,
}

/// The action of a route. The API has a field for each, so that one route may set several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HttpAction<'a> {
    Delegate(&'a Delegate),
    Redirect(&'a HttpRedirect),
    DirectResponse(&'a HttpDirectResponse),
    Forward(&'a [HttpRouteDestination]),
}

impl HttpRoute {
    /// The action that applies, in istiod's order of precedence.
    pub fn action(&self) -> HttpAction<'_> {
        if let Some(delegate) = &self.delegate {
            HttpAction::Delegate(delegate)
        } else if let Some(redirect) = &self.redirect {
            HttpAction::Redirect(redirect)
        } else if let Some(response) = &self.direct_response {
            HttpAction::DirectResponse(response)
        } else {
            HttpAction::Forward(&self.route)
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpRouteDestination {
    pub destination: Option<Destination>,
    pub weight: i32,
    pub headers: Option<Box<Headers>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Destination {
    /// As written: a short name is relative to the namespace of the object.
    pub host: String,
    pub subset: String,
    /// `None`: the only port of the service.
    pub port: Option<PortSelector>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpMirrorPolicy {
    pub destination: Option<Destination>,
    /// `None`: every request.
    pub percentage: Option<Percent>,
}

/// 0 to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Percent {
    pub value: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Headers {
    pub request: Option<HeaderOperations>,
    pub response: Option<HeaderOperations>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderOperations {
    pub set: BTreeMap<String, String>,
    pub add: BTreeMap<String, String>,
    pub remove: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsRoute {
    #[serde(rename = "match")]
    pub matches: Vec<TlsMatchAttributes>,
    pub route: Vec<RouteDestination>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsMatchAttributes {
    pub sni_hosts: Vec<String>,
    pub destination_subnets: Vec<String>,
    /// 0: every port.
    pub port: u32,
    pub source_labels: Labels,
    pub gateways: Vec<String>,
    pub source_namespace: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpRoute {
    #[serde(rename = "match")]
    pub matches: Vec<L4MatchAttributes>,
    pub route: Vec<RouteDestination>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct L4MatchAttributes {
    pub destination_subnets: Vec<String>,
    /// 0: every port.
    pub port: u32,
    pub source_subnet: String,
    pub source_labels: Labels,
    pub gateways: Vec<String>,
    pub source_namespace: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteDestination {
    pub destination: Option<Destination>,
    pub weight: i32,
}

//! Who may change the state of a running server: the admin endpoints must be enabled, and the caller must show a token of an allowed service
//! account, from loopback too. A web page in the browser of an operator can send neither the header nor the origin that is asked for.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use xds::Door;

use super::hosts::{Hosts, host};
use super::http::{Local, Peer};
use super::page::Page;
use crate::settings::{Operations, ServiceAccount};

/// A browser sends it across sites only where the server allows it beforehand, which this one never does.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-meltemi-admin");
/// Its value.
pub(crate) const CONFIRMED: &str = "1";
/// What a browser tells of where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) struct Admin {
    /// UNSAFE_ENABLE_ADMIN_ENDPOINTS.
    pub(crate) enabled: bool,
    /// MELTEMI_ADMIN_SERVICE_ACCOUNTS.
    pub(crate) accounts: Vec<ServiceAccount>,
    pub(crate) hosts: Hosts,
    /// Who knows whose a token is. `None`: the secure port is off.
    pub(crate) tokens: Option<Arc<dyn Door>>,
}

/// A request, as far as it decides who may.
pub(crate) struct Sent<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: Peer,
    pub(crate) local: Local,
}

impl Admin {
    pub(crate) fn new(operations: &Operations, hosts: Hosts, tokens: Option<Arc<dyn Door>>) -> Admin {
        Admin { enabled: operations.admin, accounts: operations.admin_accounts.clone(), hosts, tokens }
    }

    /// The service account that asks, or the answer that refuses it. `method`: by which this is asked for.
    pub(crate) async fn authorize(&self, sent: &Sent<'_>, method: &Method) -> Result<String, Page> {
        if sent.method != method {
            let why = format!("this changes the server; use {method}\n");
            return Err(Page::text(StatusCode::METHOD_NOT_ALLOWED, &why));
        }
        if !self.enabled {
            return Err(forbidden("admin endpoints are off; set UNSAFE_ENABLE_ADMIN_ENDPOINTS=true on the server"));
        }
        self.reject_cross_site(sent.uri, sent.headers, sent.local.0)?;
        self.account(sent).await
    }

    /// Against requests that a web page makes the browser of an operator send.
    fn reject_cross_site(&self, uri: &Uri, headers: &HeaderMap, local: IpAddr) -> Result<(), Page> {
        match host(uri, headers) {
            Some(Ok(host)) if self.hosts.is_own(&host, local) => {}
            Some(_) => {
                return Err(forbidden(
                    "the Host of the request is not this server's: it must be localhost, a loopback address, the address that was called, \
                     a name of the istiod Service or one of ISTIOD_CUSTOM_HOST",
                ));
            }
            None => return Err(forbidden("the request has no Host")),
        }
        if !is_same_origin(headers) {
            return Err(forbidden("the request comes from a web page of another origin"));
        }
        if headers.get(HEADER).is_none_or(|value| value != CONFIRMED) {
            return Err(forbidden(&format!("the request lacks the header {HEADER}: {CONFIRMED}")));
        }
        // Forms of web pages have other types.
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        let is_json = |value: &header::HeaderValue| {
            let text = value.to_str().unwrap_or_default();
            text.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        };
        if !types.all(is_json) {
            let why = "the Content-Type must be application/json, or absent\n";
            return Err(Page::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        Ok(())
    }

    /// By a bearer token alone: neither a client certificate nor a forwarded one says that an operator asks.
    async fn account(&self, sent: &Sent<'_>) -> Result<String, Page> {
        let Some(tokens) = &self.tokens else {
            return Err(forbidden("no token can be verified while the port with TLS is off (--secureGRPCAddr)"));
        };
        let Some(authorization) = sent.headers.get(header::AUTHORIZATION) else {
            return Err(unauthorized(&format!("this needs a token of a service account ({})", self.allowed())));
        };
        let only_token = HeaderMap::from_iter([(header::AUTHORIZATION, authorization.clone())]);
        let peer = xds::Peer { address: sent.peer.0, certificate: None };
        let caller = tokens.caller(&peer, &only_token).await.map_err(|failure| {
            tracing::debug!(peer = %sent.peer.0, ?failure, "an admin request was refused: unauthenticated");
            match failure {
                xds::Failure::Unavailable(_) => Page::text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the token cannot be reviewed at the moment; try again\n",
                ),
                _ => unauthorized(
                    "the token is not accepted: it must be a valid one of this mesh, with an audience of TOKEN_AUDIENCES",
                ),
            }
        })?;
        let [name] = &caller.identities[..] else { return Err(forbidden("a token names one service account")) };
        match name.parse::<ca::Identity>() {
            Ok(identity) if self.is_allowed(&identity) => {
                Ok(format!("{}/{}", identity.namespace, identity.service_account))
            }
            _ => Err(forbidden(&format!("{name} may not administrate this server ({})", self.allowed()))),
        }
    }

    pub(crate) fn is_allowed(&self, identity: &ca::Identity) -> bool {
        let is_it = |account: &ServiceAccount| {
            account.namespace == identity.namespace && account.name == identity.service_account
        };
        self.accounts.iter().any(is_it)
    }

    fn allowed(&self) -> String {
        let accounts: Vec<String> = self.accounts.iter().map(ToString::to_string).collect();
        format!("MELTEMI_ADMIN_SERVICE_ACCOUNTS: {}", accounts.join(", "))
    }
}

#[cfg(test)]
impl Admin {
    /// As it is unless told otherwise.
    pub(crate) fn off() -> Admin {
        Admin { enabled: false, accounts: Vec::new(), hosts: Hosts::new(&[], ""), tokens: None }
    }
}

/// Of no page at all, or of one of this server.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(|host| [b"http://", host.as_bytes()].concat());
    let own =
        |origin: &header::HeaderValue| host.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(origin.as_bytes()));
    let near = |site: &header::HeaderValue| site == "same-origin" || site == "none";
    headers.get_all(header::ORIGIN).iter().all(own) && headers.get_all(FETCH_SITE).iter().all(near)
}

fn forbidden(why: &str) -> Page {
    Page::text(StatusCode::FORBIDDEN, &format!("{why}\n"))
}

fn unauthorized(why: &str) -> Page {
    Page::text(
        StatusCode::UNAUTHORIZED,
        &format!("{why}; send it as `Authorization: Bearer ..`, with the commands by --token FILE\n"),
    )
}

//! Authorization of requests that change a running server: the admin endpoints must be enabled, and the caller needs a token of an allowed
//! service account, from loopback too. The browser of an operator sends neither the required header nor an accepted origin for a foreign page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use xds::Authenticator;

use crate::hosts::{OwnHosts, host};
use crate::http::{Local, Peer};
use crate::page::Page;
use crate::settings::{AdminAccount, AdminSettings};

/// A browser sends it across origins only after a CORS preflight, which this server never allows.
pub const HEADER: HeaderName = HeaderName::from_static("x-meltemi-admin");
/// The value of `HEADER`.
pub const CONFIRMED: &str = "1";
/// A browser tells here where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(crate) struct AdminAuthorizer {
    /// UNSAFE_ENABLE_ADMIN_ENDPOINTS.
    pub(crate) enabled: bool,
    /// MELTEMI_ADMIN_SERVICE_ACCOUNTS.
    pub(crate) accounts: Vec<AdminAccount>,
    pub(crate) hosts: OwnHosts,
    /// Authenticates tokens. `None`: the secure port is off.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
}

/// The parts of a request that authorization looks at.
pub(crate) struct AdminRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) peer: Peer,
    pub(crate) local: Local,
}

impl AdminAuthorizer {
    pub(crate) fn new(
        settings: &AdminSettings,
        hosts: OwnHosts,
        authenticator: Option<Arc<dyn Authenticator>>,
    ) -> AdminAuthorizer {
        AdminAuthorizer { enabled: settings.admin, accounts: settings.admin_accounts.clone(), hosts, authenticator }
    }

    /// The service account of the caller, or the response that rejects it. `method`: the one that the endpoint requires.
    pub(crate) async fn authorize(&self, request: &AdminRequest<'_>, method: &Method) -> Result<String, Page> {
        if request.method != method {
            let why = format!("this changes the server; use {method}\n");
            return Err(Page::text(StatusCode::METHOD_NOT_ALLOWED, &why));
        }
        if !self.enabled {
            return Err(forbidden("admin endpoints are off; set UNSAFE_ENABLE_ADMIN_ENDPOINTS=true on the server"));
        }
        self.reject_cross_site(request.uri, request.headers, request.local.0)?;
        self.account(request).await
    }

    /// CSRF: requests that a foreign web page makes the browser of an operator send.
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
        // HTML forms have other content types.
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

    /// By a bearer token only: client certificates and forwarded ones belong to workloads, not to operators.
    async fn account(&self, request: &AdminRequest<'_>) -> Result<String, Page> {
        let Some(authenticator) = &self.authenticator else {
            return Err(forbidden("no token can be verified while the port with TLS is off (--secureGRPCAddr)"));
        };
        let Some(authorization) = request.headers.get(header::AUTHORIZATION) else {
            return Err(unauthorized(&format!("this needs a token of a service account ({})", self.allowed())));
        };
        let only_token = HeaderMap::from_iter([(header::AUTHORIZATION, authorization.clone())]);
        let peer = xds::Peer { address: request.peer.0, certificate: None };
        let caller = authenticator.authenticate(&peer, &only_token).await.map_err(|failure| {
            tracing::debug!(peer = %request.peer.0, ?failure, "admin request rejected: unauthenticated");
            match failure {
                xds::CallError::Unavailable(_) => Page::text(
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
        let is_it = |account: &AdminAccount| {
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
impl AdminAuthorizer {
    /// The default.
    pub(crate) fn off() -> AdminAuthorizer {
        AdminAuthorizer { enabled: false, accounts: Vec::new(), hosts: OwnHosts::new(&[], ""), authenticator: None }
    }
}

/// No `Origin` and no `Sec-Fetch-Site`, or those of this server.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
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

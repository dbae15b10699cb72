//! Access control of pages. Loopback sees all, so that a port-forward works; others need a token of the mesh, and see their own namespace unless
//! they belong to the control plane. Requests that change the server are authorized in `authorization`.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, Uri, header::AUTHORIZATION};
use xds::Authenticator;

use crate::authorization::AdminAuthorizer;
use crate::hosts::host;
use crate::http::Peer;
use crate::page::Page;
use crate::settings::AdminSettings;

/// What a caller may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    All,
    /// Proxies of this namespace, and only what concerns one of them.
    Namespace(String),
}

impl Access {
    pub(crate) fn sees(&self, namespace: &str) -> bool {
        match self {
            Access::All => true,
            // Of an unreadable identity it is empty, as that of objects without a namespace.
            Access::Namespace(own) => !own.is_empty() && own == namespace,
        }
    }
}

pub(crate) struct AccessControl {
    /// `None`: the secure port is off, and callers cannot be authenticated.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    /// Namespaces whose callers see everything.
    pub(crate) trusted: Vec<String>,
    pub(crate) by_namespace: bool,
    pub(crate) admin: AdminAuthorizer,
}

impl AccessControl {
    pub(crate) fn new(
        settings: &AdminSettings,
        more: [String; 2],
        authenticator: Option<Arc<dyn Authenticator>>,
        admin: AdminAuthorizer,
    ) -> AccessControl {
        let trusted = settings.debug_allowed.iter().cloned().chain(more).collect();
        AccessControl { authenticator, trusted, by_namespace: settings.debug_by_namespace, admin }
    }

    /// What an HTTP caller may see, or the response that rejects the request.
    pub(crate) async fn http(&self, peer: Peer, uri: &Uri, headers: &HeaderMap) -> Result<Access, Page> {
        let rebound = peer.is_loopback() && !self.has_safe_host(uri, headers);
        if peer.is_loopback() && !rebound {
            return Ok(Access::All);
        }
        if rebound && !headers.contains_key(AUTHORIZATION) {
            let why = "the Host of the request is not this server's: use localhost or an address, or show a token of this mesh\n";
            return Err(Page::text(StatusCode::FORBIDDEN, why));
        }
        let Some(authenticator) = &self.authenticator else {
            let why =
                "debug pages answer loopback only while the port with TLS is off; use a port-forward to this host\n";
            return Err(Page::text(StatusCode::FORBIDDEN, why));
        };
        let caller = authenticator.authenticate(&xds::Peer { address: peer.0, certificate: None }, headers).await;
        match caller {
            Ok(caller) => Ok(self.access(&caller)),
            Err(xds::CallError::Unavailable(_)) => {
                let why = "the token cannot be reviewed at the moment; try again\n";
                Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, why))
            }
            Err(_) => {
                let why = "show a token of this mesh: `Authorization: Bearer ..`, audience istio-ca\n";
                Err(Page::text(StatusCode::UNAUTHORIZED, why))
            }
        }
    }

    /// A request without a Host is not from a browser.
    fn has_safe_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        host(uri, headers).is_none_or(|host| host.is_ok_and(|host| self.admin.hosts.is_safe(&host)))
    }

    pub(crate) fn access(&self, caller: &xds::Caller) -> Access {
        let identities = caller.identities.iter().filter_map(|name| name.parse::<ca::Identity>().ok());
        let identities: Vec<ca::Identity> = identities.collect();
        if identities.iter().any(|identity| self.admin.is_allowed(identity)) {
            return Access::All;
        }
        let namespaces: Vec<String> = identities.into_iter().map(|identity| identity.namespace).collect();
        if !self.by_namespace || namespaces.iter().any(|namespace| self.trusted.contains(namespace)) {
            return Access::All;
        }
        Access::Namespace(namespaces.into_iter().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(by_namespace: bool, namespace: &str) -> Access {
        let trusted = ["istio-system", "kiali"].map(str::to_owned).into();
        let caller = xds::Caller {
            identities: vec![format!("spiffe://cluster.local/ns/{namespace}/sa/x")],
            ..Default::default()
        };
        AccessControl { authenticator: None, trusted, by_namespace, admin: AdminAuthorizer::off() }.access(&caller)
    }

    #[test]
    fn a_tenant_sees_its_own_namespace() {
        assert_eq!(access(true, "shop"), Access::Namespace("shop".into()));
        assert_eq!(access(true, "kiali"), Access::All);
        assert_eq!(access(true, "istio-system"), Access::All);
        assert_eq!(access(false, "shop"), Access::All);
        assert!(Access::Namespace("shop".into()).sees("shop") && !Access::Namespace("shop".into()).sees("bank"));
    }

    #[test]
    fn an_admin_account_sees_all() {
        let account = crate::settings::AdminAccount { namespace: "ops".into(), name: "root".into() };
        let admin = AdminAuthorizer { accounts: vec![account], ..AdminAuthorizer::off() };
        let control = AccessControl { authenticator: None, trusted: Vec::new(), by_namespace: true, admin };
        let of = |name: &str| {
            let identities = vec![format!("spiffe://cluster.local/ns/ops/sa/{name}")];
            control.access(&xds::Caller { identities, ..Default::default() })
        };
        assert_eq!((of("root"), of("other")), (Access::All, Access::Namespace("ops".into())));
    }

    #[test]
    fn an_unreadable_identity_sees_nothing() {
        let trusted = vec!["istio-system".into()];
        let control = AccessControl { authenticator: None, trusted, by_namespace: true, admin: AdminAuthorizer::off() };
        let caller = xds::Caller { identities: vec!["somebody".into()], ..Default::default() };
        let access = control.access(&caller);
        assert_eq!(access, Access::Namespace(String::new()));
        assert!(!access.sees("") && !access.sees("shop"), "neither objects of a namespace nor those without one");
    }
}

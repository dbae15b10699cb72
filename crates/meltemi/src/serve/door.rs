//! Who calls on the secure port, in istiod's order: client certificate, token, forwarded certificate. And what that allows.

mod opened;
mod registry;

use std::net::IpAddr;
use std::sync::Arc;

use ca::{ClientCertificate, Identity, Tokens, forwarded_identities};
use controllers::{Reviews, TokenError};
use http::{HeaderMap, header::AUTHORIZATION};
use ipnet::IpNet;
use wire::envoy::config::core::v3::Node;
use xds::{Caller, Failure, IdentityCheck, Later, LogLimit, Peer};

pub(crate) use registry::Registry;

pub(crate) struct Door {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<ca::Metrics>,
    pub(crate) tokens: Tokens,
    /// `None`: there is no API server to ask.
    pub(crate) reviews: Option<Reviews>,
    /// Of log lines about callers that are nobody.
    pub(crate) rejections: LogLimit,
    pub(crate) trusted_gateways: Vec<IpNet>,
    /// What the nodes of callers are compared with.
    pub(crate) check: IdentityCheck,
}

/// Who a caller is, and how it showed that.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) identities: Vec<Identity>,
    pub(crate) by: Proof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Certificate,
    Token,
    Forwarded,
}

impl Door {
    /// Whom the first authenticator that succeeds names; else all their reasons. `Unavailable`: the token may be good, but could not be
    /// reviewed now.
    pub(crate) async fn shown(&self, peer: &Peer, headers: &HeaderMap) -> Result<Shown, Failure> {
        let (mut reasons, mut unavailable) = (Vec::new(), false);
        let domains = self.registry.domains();
        let one = |identity, by| Ok(Shown { identities: vec![identity], by });
        match &peer.certificate {
            Some(der) => match ClientCertificate::of(der, &domains) {
                Ok(ClientCertificate(identity)) => return one(identity, Proof::Certificate),
                Err(why) => reasons.push(why.to_string()),
            },
            None => reasons.push("there is no client certificate".to_owned()),
        }
        match bearer(headers) {
            Some(token) => match self.bearer_identity(token, peer.address.ip(), &domains).await {
                Ok(identity) => return one(identity, Proof::Token),
                Err(why) => {
                    unavailable = matches!(why, TokenError::Unavailable(_));
                    reasons.push(why.to_string());
                }
            },
            None => reasons.push("there is no bearer token".to_owned()),
        }
        let forwarded: Vec<&str> =
            headers.get_all("x-forwarded-client-cert").iter().filter_map(|value| value.to_str().ok()).collect();
        let identities = forwarded_identities(peer.address.ip(), &forwarded, &self.trusted_gateways, &domains);
        match identities.is_empty() {
            false => Ok(Shown { identities, by: Proof::Forwarded }),
            true if unavailable => Err(Failure::Unavailable(reasons.join("; "))),
            true => Err(Failure::Unauthenticated(reasons.join("; "))),
        }
    }

    /// A token that we can verify ourselves needs no API server, which may be away.
    async fn bearer_identity(
        &self,
        token: &str,
        from: IpAddr,
        domains: &ca::TrustDomains,
    ) -> Result<Identity, TokenError> {
        let why = match self.tokens.identity(token, domains) {
            Ok(identity) => return Ok(identity),
            Err(why) => TokenError::Invalid(why.to_string()),
        };
        let Some(reviews) = &self.reviews else { return Err(why) };
        let account = reviews.account(token, from).await?;
        let name = format!("spiffe://{}/ns/{}/sa/{}", domains.own, account.namespace, account.name);
        name.parse().map_err(|not: ca::NotSpiffe| TokenError::Invalid(not.to_string()))
    }
}

impl xds::Door for Door {
    fn caller<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> Later<'a, Result<Caller, Failure>> {
        let names = |shown: Shown| shown.identities.iter().map(ToString::to_string).collect();
        Box::pin(async move {
            let shown = self.shown(peer, headers).await;
            let address = Some(peer.address.ip());
            shown.map(|shown| Caller { identities: names(shown), address, check: self.check })
        })
    }

    fn denied(&self, caller: &Caller, node: &Node, why: &str) {
        self.metrics.mismatch();
        let id: String = node.id.chars().take(100).collect();
        tracing::warn!(
            node = id,
            caller = caller.identities.join(","),
            why,
            "proxy rejected: its node does not match its credentials"
        );
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

#[cfg(test)]
mod tests {
    use xds::Door as _;

    use super::*;

    fn door() -> Door {
        Door {
            registry: Registry::of(""),
            metrics: ca::Metrics::new(&prometheus::Registry::new()).unwrap(),
            tokens: Tokens { rules: Vec::new(), audiences: vec!["istio-ca".to_owned()] },
            reviews: None,
            rejections: LogLimit::default(),
            trusted_gateways: Vec::new(),
            check: IdentityCheck::Compatible,
        }
    }

    #[test]
    fn a_denied_node_is_counted() {
        let registry = prometheus::Registry::new();
        let door = Door { metrics: ca::Metrics::new(&registry).unwrap(), ..door() };
        door.denied(&Caller::default(), &Node::default(), "it is another's");
        let counted =
            registry.gather().into_iter().find(|it| it.name() == "meltemi_identity_mismatches_total").unwrap();
        assert_eq!(counted.get_metric()[0].get_counter().get_value(), 1.0);
    }

    #[tokio::test]
    async fn a_stranger_hears_every_reason() {
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), certificate: None };
        let mut headers = HeaderMap::new();
        assert_eq!(
            door().shown(&peer, &headers).await.unwrap_err(),
            Failure::Unauthenticated("there is no client certificate; there is no bearer token".to_owned())
        );
        headers.insert("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/a/sa/b".parse().unwrap());
        headers.insert(AUTHORIZATION, "Bearer x.y.z".parse().unwrap());
        let refused = door().shown(&peer, &headers).await.unwrap_err();
        assert!(matches!(refused, Failure::Unauthenticated(why) if why.ends_with("the token is not a signed JWT")));
    }
}

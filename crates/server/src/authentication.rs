//! Authentication of callers on the secure port, in istiod's order: client certificate, bearer token, forwarded certificate.

mod registry;
mod tokens;

use std::net::IpAddr;
use std::sync::Arc;

use ca::{ClientCertificate, Identity, TokenVerifier, forwarded_identities};
use controllers::{TokenError, TokenReviewer};
use http::{HeaderMap, header::AUTHORIZATION};
use ipnet::IpNet;
use wire::envoy::config::core::v3::Node;
use xds::{BoxFuture, CallError, Caller, IdentityCheck, LogLimit, Peer};

pub(crate) use registry::WorkloadRegistry;

pub(crate) struct CallerAuthenticator {
    pub(crate) registry: WorkloadRegistry,
    pub(crate) metrics: Arc<ca::CaMetrics>,
    pub(crate) tokens: TokenVerifier,
    /// TokenReviews of the API server. `None`: there is no API server.
    pub(crate) reviews: Option<TokenReviewer>,
    /// Rate limit of log lines about rejected callers.
    pub(crate) rejections: LogLimit,
    pub(crate) trusted_gateways: Vec<IpNet>,
    /// How node metadata is compared with the credentials.
    pub(crate) check: IdentityCheck,
}

/// The identities of a caller, and how they were proven.
#[derive(Debug)]
pub(crate) struct Authenticated {
    pub(crate) identities: Vec<Identity>,
    pub(crate) proof: Proof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Certificate,
    Token,
    Forwarded,
}

impl CallerAuthenticator {
    /// The result of the first method that succeeds, else the reasons of all. `Unavailable`: the token may be valid, but a TokenReview was
    /// not possible.
    pub(crate) async fn authenticate_caller(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
    ) -> Result<Authenticated, CallError> {
        let (mut reasons, mut unavailable) = (Vec::new(), false);
        let domains = self.registry.domains();
        let one = |identity, proof| Ok(Authenticated { identities: vec![identity], proof });
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
            false => Ok(Authenticated { identities, proof: Proof::Forwarded }),
            true if unavailable => Err(CallError::Unavailable(reasons.join("; "))),
            true => Err(CallError::Unauthenticated(reasons.join("; "))),
        }
    }

    /// A token that we can verify ourselves needs no API server, which may be unavailable.
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
        name.parse().map_err(|not: ca::InvalidSpiffeId| TokenError::Invalid(not.to_string()))
    }
}

impl xds::Authenticator for CallerAuthenticator {
    fn authenticate<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> BoxFuture<'a, Result<Caller, CallError>> {
        let names = |authenticated: Authenticated| authenticated.identities.iter().map(ToString::to_string).collect();
        Box::pin(async move {
            let authenticated = self.authenticate_caller(peer, headers).await;
            let address = Some(peer.address.ip());
            authenticated.map(|authenticated| Caller { identities: names(authenticated), address, check: self.check })
        })
    }

    fn on_denied(&self, caller: &Caller, node: &Node, why: &str) {
        self.metrics.mismatch();
        let id: String = node.id.chars().take(100).collect();
        tracing::warn!(
            node = id,
            caller = caller.identities.join(","),
            why,
            "proxy rejected: node metadata does not match its credentials"
        );
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

#[cfg(test)]
mod tests {
    use xds::Authenticator as _;

    use super::*;

    fn authenticator() -> CallerAuthenticator {
        CallerAuthenticator {
            registry: WorkloadRegistry::of(""),
            metrics: ca::CaMetrics::new(&prometheus::Registry::new()).unwrap(),
            tokens: TokenVerifier { rules: Vec::new(), audiences: vec!["istio-ca".to_owned()] },
            reviews: None,
            rejections: LogLimit::default(),
            trusted_gateways: Vec::new(),
            check: IdentityCheck::Compatible,
        }
    }

    #[test]
    fn a_node_that_does_not_match_is_counted() {
        let registry = prometheus::Registry::new();
        let authenticator = CallerAuthenticator { metrics: ca::CaMetrics::new(&registry).unwrap(), ..authenticator() };
        authenticator.on_denied(&Caller::default(), &Node::default(), "it is another's");
        let counted =
            registry.gather().into_iter().find(|it| it.name() == "meltemi_identity_mismatches_total").unwrap();
        assert_eq!(counted.get_metric()[0].get_counter().get_value(), 1.0);
    }

    #[tokio::test]
    async fn a_rejection_names_every_reason() {
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), certificate: None };
        let mut headers = HeaderMap::new();
        assert_eq!(
            authenticator().authenticate_caller(&peer, &headers).await.unwrap_err(),
            CallError::Unauthenticated("there is no client certificate; there is no bearer token".to_owned())
        );
        headers.insert("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/a/sa/b".parse().unwrap());
        headers.insert(AUTHORIZATION, "Bearer x.y.z".parse().unwrap());
        let rejection = authenticator().authenticate_caller(&peer, &headers).await.unwrap_err();
        assert!(matches!(rejection, CallError::Unauthenticated(why) if why.ends_with("the token is not a signed JWT")));
    }
}

//! Who calls on the secure port, in istiod's order: client certificate, token, forwarded certificate. And what that allows.

mod opened;
mod registry;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ca::{ClientCertificate, Identity, Tokens, forwarded_identities};
use controllers::Reviews;
use http::{HeaderMap, header::AUTHORIZATION};
use ipnet::IpNet;
use prost::Message;
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{Struct, Value, value::Kind};
use wire::structure;
use xds::{Caller, Later, Peer};

use registry::Claim;
pub(crate) use registry::Registry;

pub(crate) struct Door {
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<ca::Metrics>,
    pub(crate) tokens: Tokens,
    /// `None`: there is no API server to ask.
    pub(crate) reviews: Option<Reviews>,
    pub(crate) trusted_gateways: Vec<IpNet>,
    /// PILOT_ENABLE_XDS_IDENTITY_CHECK.
    pub(crate) check: bool,
    /// MELTEMI_XDS_IDENTITY=strict.
    pub(crate) strict: bool,
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
    /// Whom the first authenticator that succeeds names; else all their reasons.
    pub(crate) async fn shown(&self, peer: &Peer, headers: &HeaderMap) -> Result<Shown, String> {
        let mut reasons = Vec::new();
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
            Some(token) => match self.bearer_identity(token, &domains).await {
                Ok(identity) => return one(identity, Proof::Token),
                Err(why) => reasons.push(why),
            },
            None => reasons.push("there is no bearer token".to_owned()),
        }
        let forwarded: Vec<&str> =
            headers.get_all("x-forwarded-client-cert").iter().filter_map(|value| value.to_str().ok()).collect();
        let identities = forwarded_identities(peer.address.ip(), &forwarded, &self.trusted_gateways, &domains);
        if identities.is_empty() { Err(reasons.join("; ")) } else { Ok(Shown { identities, by: Proof::Forwarded }) }
    }

    /// A token that we can verify ourselves needs no API server, which may be away.
    async fn bearer_identity(&self, token: &str, domains: &ca::TrustDomains) -> Result<Identity, String> {
        let why = match self.tokens.identity(token, domains) {
            Ok(identity) => return Ok(identity),
            Err(why) => why.to_string(),
        };
        let Some(reviews) = &self.reviews else { return Err(why) };
        let account = reviews.account(token).await?;
        let name = format!("spiffe://{}/ns/{}/sa/{}", domains.own, account.namespace, account.name);
        name.parse().map_err(|not: ca::NotSpiffe| not.to_string())
    }
}

impl xds::Door for Door {
    fn caller<'a>(&'a self, peer: &'a Peer, headers: &'a HeaderMap) -> Later<'a, Result<Caller, String>> {
        let names = |shown: Shown| shown.identities.iter().map(ToString::to_string).collect();
        Box::pin(async move {
            let shown = self.shown(peer, headers).await;
            shown.map(|shown| Caller { identities: names(shown), address: Some(peer.address.ip()) })
        })
    }

    fn admit(&self, caller: &Caller, node: &Node) -> Result<Node, String> {
        if !self.check {
            return Ok(node.clone());
        }
        let identities: Vec<Identity> = caller.identities.iter().filter_map(|name| name.parse().ok()).collect();
        let claimed = claimed(node);
        let fits = |identity: &&Identity| {
            let same = |claim: &str, own: &str| claim.is_empty() || claim == own;
            same(&claimed.namespace, &identity.namespace) && same(&claimed.account, &identity.service_account)
        };
        match identities.iter().find(fits) {
            Some(identity) => self.proven(filled(node, &claimed, identity), identity),
            None => {
                self.metrics.mismatch();
                tracing::warn!(
                    node = node.id,
                    namespace = claimed.namespace,
                    account = claimed.account,
                    caller = caller.identities.join(","),
                    "a proxy speaks for another identity than its own"
                );
                Err(format!(
                    "the caller {} may not act for namespace {:?} and service account {:?}",
                    caller.identities.join(","),
                    claimed.namespace,
                    claimed.account
                ))
            }
        }
    }
}

impl Door {
    fn proven(&self, mut node: Node, identity: &Identity) -> Result<Node, String> {
        let claim = self.registry.claim(&node, identity);
        match claim {
            Ok(Claim::Known) => Ok(node),
            Ok(Claim::Unknown) if self.strict => {
                node.metadata = node.metadata.map(without_labels).transpose()?;
                Ok(node)
            }
            Ok(Claim::Unknown) => Ok(node),
            Err(why) if self.strict => {
                self.metrics.mismatch();
                tracing::warn!(node = node.id, caller = %identity, why, "a proxy is not what it says");
                Err(why)
            }
            Err(why) => {
                tracing::warn!(node = node.id, caller = %identity, why, "a proxy may not be what it says; strict identity would refuse it");
                Ok(node)
            }
        }
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

/// What a node says of itself; empty: nothing.
struct Claimed {
    namespace: String,
    account: String,
}

/// A key of the node's metadata. `None`: it is not there, is empty, or is no text.
fn text(node: &Node, key: &str) -> Option<String> {
    // A node whose metadata cannot be read does not come to the door.
    let text = structure::text(node.metadata.as_ref()?, key).ok()??;
    (!text.is_empty()).then(|| text.to_owned())
}

fn claimed(node: &Node) -> Claimed {
    // As istiod: the namespace is the first label of the domain where the metadata has none.
    let by_domain = || {
        let domain = node.id.split('~').nth(3).unwrap_or_default();
        domain.split_once('.').map(|(namespace, _)| namespace.to_owned())
    };
    Claimed {
        namespace: text(node, "NAMESPACE").or_else(by_domain).unwrap_or_default(),
        account: text(node, "SERVICE_ACCOUNT").unwrap_or_default(),
    }
}

/// What the node left open is the identity's: nobody is served as nobody.
fn filled(node: &Node, claimed: &Claimed, identity: &Identity) -> Node {
    let parts = [
        ("NAMESPACE", &claimed.namespace, &identity.namespace),
        ("SERVICE_ACCOUNT", &claimed.account, &identity.service_account),
    ];
    let own = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let open = parts.into_iter().filter(|(_, claim, _)| claim.is_empty());
    let fields: BTreeMap<_, _> = open.map(|(key, _, text)| (key.to_owned(), own(text))).collect();
    let mut node = node.clone();
    if !fields.is_empty() {
        // Of two values the last one counts.
        let metadata = [node.metadata.unwrap_or_default(), Struct { fields }.encode_to_vec().into()].concat();
        node.metadata = Some(metadata.into());
    }
    node
}

fn without_labels(metadata: Bytes) -> Result<Bytes, String> {
    let mut metadata = Struct::decode(metadata).map_err(|error| error.to_string())?;
    metadata.fields.remove("LABELS");
    Ok(metadata.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use xds::Door as _;

    use super::*;

    fn door() -> Door {
        Door {
            registry: Registry::of(POD),
            metrics: ca::Metrics::new(&prometheus::Registry::new()).unwrap(),
            strict: false,
            tokens: Tokens { rules: Vec::new(), audiences: vec!["istio-ca".to_owned()] },
            reviews: None,
            trusted_gateways: Vec::new(),
            check: true,
        }
    }

    fn node(id: &str, metadata: &[(&str, &str)]) -> Node {
        let value = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let fields = metadata.iter().map(|(key, text)| ((*key).to_owned(), value(text))).collect();
        Node { id: id.to_owned(), metadata: Some(Struct { fields }.encode_to_vec().into()), ..Node::default() }
    }

    const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop}
spec: {serviceAccountName: cart, containers: []}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
";

    const ID: &str = "sidecar~10.0.0.1~cart-1.shop~shop.svc.cluster.local";

    fn cart() -> Caller {
        Caller { identities: vec!["spiffe://cluster.local/ns/shop/sa/cart".to_owned()], address: None }
    }

    fn admit(node: &Node) -> Result<Node, String> {
        let caller = cart();
        door().admit(&caller, node)
    }

    #[test]
    fn another_namespace_is_denied() {
        assert!(admit(&node(ID, &[("NAMESPACE", "shop")])).is_ok());
        let denied = admit(&node(ID, &[("NAMESPACE", "bank")])).unwrap_err();
        assert!(denied.contains("bank") && denied.contains("ns/shop/sa/cart"), "{denied}");
        assert!(admit(&node("sidecar~10.0.0.1~x.bank~bank.svc.cluster.local", &[])).is_err());
        let registry = prometheus::Registry::new();
        let counting = Door { metrics: ca::Metrics::new(&registry).unwrap(), ..door() };
        counting.admit(&cart(), &node(ID, &[("NAMESPACE", "bank")])).unwrap_err();
        let counted =
            registry.gather().into_iter().find(|it| it.name() == "meltemi_identity_mismatches_total").unwrap();
        assert_eq!(counted.get_metric()[0].get_counter().get_value(), 1.0);
    }

    #[test]
    fn another_account_is_denied() {
        assert!(admit(&node(ID, &[("SERVICE_ACCOUNT", "cart")])).is_ok());
        assert!(admit(&node(ID, &[("SERVICE_ACCOUNT", "admin")])).is_err());
    }

    #[test]
    fn what_is_left_open_is_filled_from_the_identity() {
        let served = admit(&node("sidecar~10.0.0.1~x~nodot", &[])).unwrap();
        let claimed = claimed(&served);
        assert_eq!((&*claimed.namespace, &*claimed.account), ("shop", "cart"));
        let info = views::node_info(&served).unwrap();
        assert_eq!(info.metadata, serde_json::json!({"NAMESPACE": "shop", "SERVICE_ACCOUNT": "cart"}));
    }

    #[test]
    fn of_a_claim_made_twice_the_one_that_is_served_is_checked() {
        let claim = |namespace| node(ID, &[("NAMESPACE", namespace)]).metadata.unwrap();
        let twice = |one, two| Node { metadata: Some([claim(one), claim(two)].concat().into()), ..node(ID, &[]) };
        assert!(admit(&twice("bank", "shop")).is_ok());
        assert!(admit(&twice("shop", "bank")).is_err());
    }

    /// Row A-04, and what table 2.3 adds for strict identity.
    #[test]
    fn a_sidecar_that_says_it_is_a_gateway_is_refused_where_identity_is_strict() {
        let caller = cart();
        let gateway = node("router~10.0.0.9~gateway-1.shop~shop.svc.cluster.local", &[("LABELS", "istio: ingress")]);
        let served = door().admit(&caller, &gateway).unwrap();
        assert_eq!(served.id, gateway.id, "compatible: it is said, and served");
        let strict = Door { strict: true, ..door() };
        assert!(strict.admit(&caller, &gateway).unwrap_err().contains("known workload"));
        assert!(
            strict
                .admit(&caller, &node("sidecar~10.9.9.9~cart-1.shop~shop.svc.x", &[]))
                .unwrap_err()
                .contains("10.9.9.9")
        );
        let elsewhere = node(ID, &[("CLUSTER_ID", "other")]);
        assert!(strict.admit(&caller, &elsewhere).unwrap_err().contains("cluster"));
        let unknown = strict.admit(&caller, &node("sidecar~10.0.0.9~new.shop~shop.svc.x", &[("LABELS", "x")])).unwrap();
        assert!(text(&unknown, "LABELS").is_none(), "labels that nobody vouches for select nothing");
        assert!(strict.admit(&caller, &node(ID, &[])).is_ok());
    }

    #[test]
    fn the_check_can_be_turned_off() {
        let open = Door { check: false, ..door() };
        assert!(open.admit(&Caller::default(), &node(ID, &[("NAMESPACE", "bank")])).is_ok());
    }

    #[tokio::test]
    async fn a_stranger_hears_every_reason() {
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), certificate: None };
        let mut headers = HeaderMap::new();
        assert_eq!(
            door().shown(&peer, &headers).await.unwrap_err(),
            "there is no client certificate; there is no bearer token"
        );
        headers.insert("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/a/sa/b".parse().unwrap());
        headers.insert(AUTHORIZATION, "Bearer x.y.z".parse().unwrap());
        assert!(door().shown(&peer, &headers).await.unwrap_err().ends_with("the token is not a signed JWT"));
    }
}

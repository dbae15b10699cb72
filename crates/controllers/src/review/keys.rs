//! The public keys of the API server's tokens, as published at `/openid/v1/jwks` (every service account may read
//! them unless the cluster's administrator removed that right). They decide the priority of a review, never the authentication: a token
//! that they verify may be of a deleted account.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde_json::Value;
use sources::kube::{KubeClient, RequestError};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::{debug, info};

use super::claims::{Claims, LEGACY_ISSUER};

/// The result of the signature check of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    Verified,
    /// The API server may have a key that it does not publish.
    Unknown,
    /// It does not match the key that it names, or names neither a key nor an issuer of this API server.
    Wrong,
}

pub(super) struct Keys {
    published: watch::Receiver<Option<Arc<Published>>>,
    wanted: Arc<Notify>,
    task: AbortHandle,
}

/// Empty by default.
#[derive(Default)]
struct Published {
    by_id: HashMap<String, DecodingKey>,
    /// Issuers of tokens with unpublished keys. Empty: unknown. Another issuer is accepted too if its key is published.
    issuers: BTreeSet<String>,
}

const JWKS: &str = "/openid/v1/jwks";
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// The refresh interval; a token with an unknown key triggers a refresh, but not sooner than `MIN_REFRESH`.
const REFRESH: Duration = Duration::from_secs(300);
const MIN_REFRESH: Duration = Duration::from_secs(10);
/// The timeout of a request, and how long the first tokens wait for the first keys.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_secs(1);

impl Keys {
    /// Refreshes them in the background until this is dropped.
    pub(super) fn follow(client: KubeClient) -> Keys {
        let (sender, published) = watch::channel(None);
        let wanted = Arc::<Notify>::default();
        let task = tokio::spawn(follow(client, sender, wanted.clone())).abort_handle();
        Keys { published, wanted, task }
    }

    pub(super) async fn check(&self, claims: &Claims<'_>) -> Signature {
        let mut published = self.published.clone();
        let known = timeout(FIRST_WAIT, published.wait_for(Option::is_some)).await;
        let Some(known) = known.ok().and_then(Result::ok).and_then(|known| known.clone()) else {
            return Signature::Unknown;
        };
        let signature = known.check(claims);
        if signature == Signature::Unknown || !known.names(claims) {
            self.wanted.notify_one();
        }
        signature
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Published {
    fn new(set: &JwkSet, issuers: BTreeSet<String>) -> Published {
        let key = |jwk: &jsonwebtoken::jwk::Jwk| {
            let id = jwk.common.key_id.clone().filter(|id| !id.is_empty())?;
            // Unsupported keys are left out: their tokens are unknown.
            Some((id, DecodingKey::from_jwk(jwk).ok()?))
        };
        Published { by_id: set.keys.iter().filter_map(key).collect(), issuers }
    }

    fn names(&self, claims: &Claims<'_>) -> bool {
        claims.key.as_ref().is_none_or(|id| self.by_id.contains_key(id))
    }

    fn check(&self, claims: &Claims<'_>) -> Signature {
        let Ok(algorithm) = claims.algorithm.parse::<Algorithm>() else { return Signature::Unknown };
        let verifies = |key: &DecodingKey| {
            crypto::verify(claims.signature, claims.signed.as_bytes(), key, algorithm).unwrap_or(false)
        };
        let named = claims.key.as_ref().map(|id| self.by_id.get(id));
        match named {
            Some(Some(key)) if verifies(key) => Signature::Verified,
            Some(Some(_)) => Signature::Wrong,
            None if self.by_id.values().any(verifies) => Signature::Verified,
            _ if !self.issuers.is_empty() && !self.issuers.contains(&claims.issuer) => Signature::Wrong,
            _ => Signature::Unknown,
        }
    }
}

async fn follow(client: KubeClient, sender: watch::Sender<Option<Arc<Published>>>, wanted: Arc<Notify>) {
    let mut logged = false;
    loop {
        let read = timeout(REQUEST_TIMEOUT, published(&client)).await;
        match read.unwrap_or_else(|_| Err(RequestError::Connection(format!("no answer within {REQUEST_TIMEOUT:?}")))) {
            Ok(published) => {
                debug!(keys = published.by_id.len(), "read the public keys of the API server");
                sender.send_replace(Some(Arc::new(published)));
                logged = false;
            }
            Err(failure) => {
                if !std::mem::replace(&mut logged, true) {
                    info!(%failure, path = JWKS, "cannot read the public keys of the API server: every new token needs a TokenReview");
                }
                // The known keys stay; without any, nobody waits for them.
                sender.send_if_modified(|known| known.is_none().then(|| *known = Some(Arc::default())).is_some());
            }
        }
        sleep(MIN_REFRESH).await;
        let _ = timeout(REFRESH - MIN_REFRESH, wanted.notified()).await;
    }
}

async fn published(client: &KubeClient) -> Result<Published, RequestError> {
    let unreadable = |error: serde_json::Error| RequestError::Unreadable(error.to_string());
    let keys: JwkSet = serde_json::from_slice(&client.get(JWKS, "*/*").await?).map_err(unreadable)?;
    let discovery: Value = serde_json::from_slice(&client.get(DISCOVERY, "*/*").await?).map_err(unreadable)?;
    let issuer = discovery["issuer"].as_str().filter(|issuer| !issuer.is_empty());
    let issuers = issuer.map(|issuer| [issuer, LEGACY_ISSUER].map(str::to_owned).into());
    Ok(Published::new(&keys, issuers.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use data_encoding::BASE64URL_NOPAD;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::super::claims::tests::{NOW, token};
    use super::*;

    const ISSUER: &str = "https://kubernetes.default.svc";

    /// A key pair: the published JWK, and the signing key.
    fn pair(id: &str) -> (Value, EncodingKey) {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let coordinate = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
        let jwk = json!({
            "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": id,
            "x": coordinate(&point[1..33]), "y": coordinate(&point[33..]),
        });
        let private = pair.to_pkcs8v1().unwrap();
        (jwk, EncodingKey::from_ec_der(private.as_ref()))
    }

    fn published(jwk: &Value) -> Published {
        let set: JwkSet = serde_json::from_value(json!({ "keys": [jwk] })).unwrap();
        Published::new(&set, [ISSUER.to_owned()].into())
    }

    fn payload(issuer: &str) -> Value {
        json!({ "iss": issuer, "sub": "system:serviceaccount:a:b", "aud": "istio-ca", "exp": NOW + 60.0 })
    }

    fn signed(id: Option<&str>, key: &EncodingKey, issuer: &str) -> String {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::ES256) };
        encode(&header, &payload(issuer), key).unwrap()
    }

    fn check(published: &Published, token: &str) -> Signature {
        published.check(&Claims::of(token, &[], NOW).unwrap())
    }

    #[test]
    fn a_signature_of_a_published_key_is_verified_whoever_the_issuer_is() {
        let (jwk, key) = pair("one");
        let known = published(&jwk);
        assert_eq!(check(&known, &signed(Some("one"), &key, ISSUER)), Signature::Verified);
        assert_eq!(check(&known, &signed(None, &key, ISSUER)), Signature::Verified, "an old API server names no key");
        assert_eq!(check(&known, &signed(Some("one"), &key, "https://older")), Signature::Verified);
    }

    #[test]
    fn a_signature_that_a_published_key_did_not_make_is_wrong() {
        let ((jwk, _), (_, other)) = (pair("one"), pair("two"));
        let known = published(&jwk);
        assert_eq!(check(&known, &signed(Some("one"), &other, ISSUER)), Signature::Wrong);
        let junk = token(&json!({ "alg": "ES256", "kid": "one" }), &payload(ISSUER));
        assert_eq!(check(&known, &junk), Signature::Wrong);
        let other_algorithm = token(&json!({ "alg": "RS256", "kid": "one" }), &payload(ISSUER));
        assert_eq!(check(&known, &other_algorithm), Signature::Wrong);
        assert_eq!(check(&known, &signed(Some("two"), &other, "https://elsewhere")), Signature::Wrong);
    }

    /// Keys of an external signer need not be published.
    #[test]
    fn a_key_that_is_not_published_may_still_be_the_api_servers() {
        let ((jwk, _), (_, other)) = (pair("one"), pair("two"));
        let known = published(&jwk);
        assert_eq!(check(&known, &signed(Some("two"), &other, ISSUER)), Signature::Unknown);
        assert_eq!(check(&known, &signed(None, &other, ISSUER)), Signature::Unknown);
        let nothing = Published::default();
        assert_eq!(check(&nothing, &signed(Some("two"), &other, "https://elsewhere")), Signature::Unknown);
    }
}

//! Service account tokens, verified locally against known keys: our own issuer's, or those of a JWKS file.

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, jwk::JwkSet};
use serde::Deserialize;

use crate::{Identity, TrustDomains, identity::is_name};

/// Kubernetes tokens have about 1 KB.
const MAX_SIZE: usize = 16 << 10;
/// Only asymmetric algorithms: a shared secret would make every verifier an issuer.
const ALGORITHMS: [Algorithm; 6] =
    [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::ES256, Algorithm::ES384, Algorithm::PS256];

/// One trusted issuer.
pub struct TokenIssuer {
    /// Empty: any issuer (a JWKS file names none).
    pub issuer: String,
    pub keys: JwkSet,
}

/// All trusted issuers.
pub struct TokenVerifier {
    pub rules: Vec<TokenIssuer>,
    /// TOKEN_AUDIENCES: one of them must be in the token.
    pub audiences: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRejected {
    #[error("the token has {0} bytes; at most {MAX_SIZE} are read")]
    Size(usize),
    #[error("the token is not a signed JWT")]
    Form,
    #[error("the token is signed with {0}, which is not accepted")]
    Algorithm(String),
    #[error("no known key of a known issuer verifies the token")]
    Key,
    #[error("the token expired")]
    Expired,
    #[error("the token is not for this audience; it must name one of {0}")]
    Audience(String),
    #[error("the token's subject is not of the form system:serviceaccount:NAMESPACE:ACCOUNT")]
    Subject,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl TokenVerifier {
    pub fn identity(&self, token: &str, domains: &TrustDomains) -> Result<Identity, TokenRejected> {
        if token.len() > MAX_SIZE {
            return Err(TokenRejected::Size(token.len()));
        }
        let header = decode_header(token).map_err(|_| TokenRejected::Form)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenRejected::Algorithm(format!("{:?}", header.alg)));
        }
        let mut rejected = TokenRejected::Key;
        for rules in &self.rules {
            for key in candidates(&rules.keys, header.kid.as_deref()) {
                match self.subject(token, header.alg, &key, &rules.issuer) {
                    Ok(subject) => return account(&subject, domains),
                    // More specific than the error of a key that does not match.
                    Err(why) if why != TokenRejected::Key => rejected = why,
                    Err(_) => {}
                }
            }
        }
        Err(rejected)
    }

    fn subject(&self, token: &str, alg: Algorithm, key: &DecodingKey, issuer: &str) -> Result<String, TokenRejected> {
        use jsonwebtoken::errors::ErrorKind;
        let mut validation = Validation::new(alg);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        validation.validate_nbf = true;
        if !issuer.is_empty() {
            validation.set_issuer(&[issuer]);
        }
        let decoded = decode::<Claims>(token, key, &validation).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => TokenRejected::Expired,
            ErrorKind::InvalidAudience => TokenRejected::Audience(self.audiences.join(", ")),
            ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => {
                TokenRejected::Audience(self.audiences.join(", "))
            }
            _ => TokenRejected::Key,
        })?;
        Ok(decoded.claims.sub)
    }
}

/// Keys that may have signed: the named one, or all if the token names none.
fn candidates(keys: &JwkSet, kid: Option<&str>) -> Vec<DecodingKey> {
    let named = keys.keys.iter().filter(|key| match kid {
        Some(kid) => key.common.key_id.as_deref().is_none_or(|id| id == kid),
        None => true,
    });
    // Unsupported keys of the set are ignored.
    named.filter_map(|key| DecodingKey::from_jwk(key).ok()).collect()
}

fn account(subject: &str, domains: &TrustDomains) -> Result<Identity, TokenRejected> {
    let parts: Vec<&str> = subject.split(':').collect();
    let ["system", "serviceaccount", namespace, account] = parts[..] else { return Err(TokenRejected::Subject) };
    if !is_name(namespace) || !is_name(account) {
        return Err(TokenRejected::Subject);
    }
    Ok(domains.identity(namespace, account))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;
    use crate::Issuer;

    fn domains() -> TrustDomains {
        TrustDomains { own: "cluster.local".to_owned(), aliases: Vec::new() }
    }

    fn issuer() -> (tempfile::TempDir, Issuer) {
        let folder = tempfile::tempdir().unwrap();
        let issuer = Issuer::open(folder.path()).unwrap();
        (folder, issuer)
    }

    fn tokens(issuer: &Issuer) -> TokenVerifier {
        TokenVerifier { rules: vec![issuer.rules()], audiences: vec!["istio-ca".to_owned()] }
    }

    fn claims(sub: &str, aud: &str, from_now: i64) -> serde_json::Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        json!({"iss": Issuer::NAME, "sub": sub, "aud": [aud], "exp": now + from_now})
    }

    #[test]
    fn our_own_token_is_its_accounts() {
        let (_folder, issuer) = issuer();
        let token = issuer.token("shop", "cart", "istio-ca", Duration::from_secs(60), SystemTime::now()).unwrap();
        let identity = tokens(&issuer).identity(&token, &domains()).unwrap();
        assert_eq!(identity.to_string(), "spiffe://cluster.local/ns/shop/sa/cart");
    }

    #[test]
    fn rejects_expired_and_foreign_tokens_and_wrong_audiences() {
        let (_folder, issuer) = issuer();
        let tokens = tokens(&issuer);
        let (second, now) = (Duration::from_secs(1), SystemTime::now());
        let other = issuer.token("a", "b", "elsewhere", second * 60, now).unwrap();
        assert_eq!(tokens.identity(&other, &domains()), Err(TokenRejected::Audience("istio-ca".to_owned())));
        let old = issuer.token("a", "b", "istio-ca", second, now - second * 600).unwrap();
        assert_eq!(tokens.identity(&old, &domains()), Err(TokenRejected::Expired));
        let (_other_folder, stranger) = self::issuer();
        let foreign = stranger.token("a", "b", "istio-ca", second * 60, now).unwrap();
        assert_eq!(tokens.identity(&foreign, &domains()), Err(TokenRejected::Key));
    }

    /// Row F-16: small clock skew is no reason to reject.
    #[test]
    fn half_a_minute_after_its_end_a_token_is_still_good() {
        let (_folder, issuer) = issuer();
        let second = Duration::from_secs(1);
        let late = issuer.token("a", "b", "istio-ca", second * 60, SystemTime::now() - second * 90).unwrap();
        assert!(tokens(&issuer).identity(&late, &domains()).is_ok());
        let early = issuer.token("a", "b", "istio-ca", second * 60, SystemTime::now() + second * 30).unwrap();
        assert!(tokens(&issuer).identity(&early, &domains()).is_ok());
    }

    #[test]
    fn rejects_unsigned_tokens_and_a_public_key_as_secret() {
        let (_folder, issuer) = issuer();
        let tokens = tokens(&issuer);
        let subject = "system:serviceaccount:a:b";
        let part = |value: &serde_json::Value| data_encoding::BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let none = format!("{}.{}.", part(&json!({"alg": "none"})), part(&claims(subject, "istio-ca", 60)));
        assert_eq!(tokens.identity(&none, &domains()), Err(TokenRejected::Form));
        let public = serde_json::to_vec(&issuer.rules().keys).unwrap();
        let confused = encode(
            &Header::new(Algorithm::HS256),
            &claims(subject, "istio-ca", 60),
            &EncodingKey::from_secret(&public),
        );
        assert_eq!(tokens.identity(&confused.unwrap(), &domains()), Err(TokenRejected::Algorithm("HS256".to_owned())));
        assert_eq!(tokens.identity(&"x".repeat(1 << 20), &domains()), Err(TokenRejected::Size(1 << 20)));
        assert_eq!(tokens.identity("a.b.c", &domains()), Err(TokenRejected::Form));
    }

    #[test]
    fn only_service_accounts_have_an_identity() {
        for bad in [
            "",
            "system",
            "system:serviceaccount",
            "system:serviceaccount:a",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount::b",
            "system:serviceaccount:a:b/c",
            "system:node:a:b",
            "user",
        ] {
            assert_eq!(account(bad, &domains()), Err(TokenRejected::Subject), "{bad}");
        }
    }
}

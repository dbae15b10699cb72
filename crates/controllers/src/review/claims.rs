//! The claims of a token, read before it is verified: a token that no API server could accept costs no request.
//! Every possible valid service account token passes.

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;

/// Of a plausible service account token. Nothing of it is verified.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    pub(super) algorithm: String,
    /// The id of the signing key. `None`: old API servers set none.
    pub(super) key: Option<String>,
    pub(super) issuer: String,
    /// The signed part and the signature, as encoded in the token.
    pub(super) signed: &'a str,
    pub(super) signature: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Implausible {
    #[error("it has {0} bytes; at most {MAX_SIZE} are read")]
    Size(usize),
    #[error("it is not a signed JWT")]
    Form,
    #[error("it is not signed with a private key")]
    Algorithm,
    #[error("it names no issuer")]
    Issuer,
    #[error("it is not for this audience")]
    Audience,
    #[error("it is expired, or names no expiry")]
    Expired,
    #[error("it is not valid yet")]
    Early,
    #[error("it is not a token of a service account")]
    Subject,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    sub: String,
    #[serde(default)]
    aud: Audiences,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Audiences {
        Audiences::Several(Vec::new())
    }
}

/// Kubernetes tokens have about 1 KB.
const MAX_SIZE: usize = 16 << 10;
/// Allowed clock skew, in seconds.
const SKEW: f64 = 300.0;
/// The issuer of tokens from Secrets, which never expire and have no audience: they are for that of the API server.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

impl<'a> Claims<'a> {
    /// `audiences`: one of them must match. Empty: any does. `now`: in seconds since 1970.
    pub(super) fn of(token: &'a str, audiences: &[String], now: f64) -> Result<Claims<'a>, Implausible> {
        if token.len() > MAX_SIZE {
            return Err(Implausible::Size(token.len()));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Implausible::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(Implausible::Form)?;
        let Header { alg, kid } = part(header)?;
        let payload: Payload = part(payload)?;
        // API servers sign with asymmetric keys only.
        if alg == "none" || alg.starts_with("HS") {
            return Err(Implausible::Algorithm);
        }
        if signature.is_empty() || BASE64URL_NOPAD.decode(signature.as_bytes()).is_err() {
            return Err(Implausible::Form);
        }
        payload.check(audiences, now)?;
        let key = kid.filter(|kid| !kid.is_empty());
        Ok(Claims { algorithm: alg, key, issuer: payload.iss, signed, signature })
    }
}

impl Payload {
    fn check(&self, audiences: &[String], now: f64) -> Result<(), Implausible> {
        let named = match &self.aud {
            Audiences::One(name) => std::slice::from_ref(name),
            Audiences::Several(names) => names,
        };
        let legacy = self.iss == LEGACY_ISSUER && named.is_empty();
        if self.iss.is_empty() {
            return Err(Implausible::Issuer);
        }
        if !legacy && !audiences.is_empty() && !named.iter().any(|name| audiences.contains(name)) {
            return Err(Implausible::Audience);
        }
        if !self.exp.map_or(legacy, |exp| exp + SKEW > now) {
            return Err(Implausible::Expired);
        }
        if [self.nbf, self.iat].into_iter().flatten().any(|from| from - SKEW > now) {
            return Err(Implausible::Early);
        }
        let account = self.sub.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        match account {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(()),
            _ => Err(Implausible::Subject),
        }
    }
}

/// Of a namespace or a service account: a DNS subdomain.
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Implausible> {
    let json = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| Implausible::Form)?;
    serde_json::from_slice(&json).map_err(|_| Implausible::Form)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in super::super) const NOW: f64 = 1_700_000_000.0;

    pub(in super::super) fn token(header: &Value, payload: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        format!("{}.{}.c2lnbmF0dXJl", part(header), part(payload))
    }

    fn good() -> Value {
        json!({
            "iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:shop:cart", "aud": ["x", "istio-ca"],
            "exp": NOW + 600.0, "nbf": NOW, "iat": NOW, "kubernetes.io": { "namespace": "shop" },
        })
    }

    fn checked(header: &Value, payload: &Value) -> Result<(), Implausible> {
        Claims::of(&token(header, payload), &["istio-ca".to_owned()], NOW).map(drop)
    }

    fn with(key: &str, value: Value) -> Result<(), Implausible> {
        let mut payload = good();
        payload[key] = value;
        checked(&json!({ "alg": "RS256", "kid": "k" }), &payload)
    }

    #[test]
    fn tokens_of_kubernetes_are_plausible() {
        let header = json!({ "alg": "RS256", "kid": "k", "typ": "JWT" });
        let token = token(&header, &good());
        let claims = Claims::of(&token, &["istio-ca".to_owned()], NOW).expect("plausible");
        assert_eq!((claims.algorithm.as_str(), claims.key.as_deref()), ("RS256", Some("k")));
        assert_eq!(claims.issuer, "https://kubernetes.default.svc");
        assert_eq!(format!("{}.{}", claims.signed, claims.signature), token);
        assert_eq!(with("aud", json!("istio-ca")), Ok(()));
        assert_eq!(with("exp", json!(NOW - 60.0)), Ok(()), "clocks differ");
        assert_eq!(with("nbf", json!(NOW + 60.0)), Ok(()));
        assert_eq!(with("sub", json!("system:serviceaccount:shop:v1.cart")), Ok(()));
        let legacy = json!({ "iss": LEGACY_ISSUER, "sub": "system:serviceaccount:shop:cart" });
        assert_eq!(checked(&json!({ "alg": "ES256" }), &legacy), Ok(()), "the API server says for whom it is");
    }

    #[test]
    fn rejects_what_no_api_server_would_believe() {
        assert_eq!(with("iss", json!("")), Err(Implausible::Issuer));
        assert_eq!(with("aud", json!(["vault"])), Err(Implausible::Audience));
        assert_eq!(with("aud", json!([])), Err(Implausible::Audience));
        assert_eq!(with("exp", json!(NOW - 3600.0)), Err(Implausible::Expired));
        assert_eq!(with("exp", Value::Null), Err(Implausible::Expired));
        assert_eq!(with("nbf", json!(NOW + 3600.0)), Err(Implausible::Early));
        assert_eq!(with("iat", json!(NOW + 3600.0)), Err(Implausible::Early));
        for subject in
            ["", "alice", "system:serviceaccount:shop", "system:serviceaccount:shop:", "system:serviceaccount:a:b:c"]
        {
            assert_eq!(with("sub", json!(subject)), Err(Implausible::Subject), "{subject}");
        }
        for algorithm in ["none", "HS256"] {
            assert_eq!(checked(&json!({ "alg": algorithm }), &good()), Err(Implausible::Algorithm));
        }
    }

    #[test]
    fn rejects_what_is_no_jwt() {
        let three = token(&json!({ "alg": "RS256" }), &good());
        let unsigned = format!("{}.", three.rsplit_once('.').expect("it has parts").0);
        let four = format!("{three}.x");
        let number = token(&json!(1), &good());
        let list = token(&json!({ "alg": "RS256" }), &json!([[[1]]]));
        for junk in
            ["", "junk", "a.b.c", "...", "eyJ9.eyJ9.eyJ9", &unsigned, &four, &number, &list, "\u{e9}.\u{e9}.\u{e9}"]
        {
            assert_eq!(Claims::of(junk, &[], NOW).unwrap_err(), Implausible::Form, "{junk}");
        }
        assert_eq!(Claims::of(&"x".repeat(1 << 20), &[], NOW).unwrap_err(), Implausible::Size(1 << 20));
    }
}

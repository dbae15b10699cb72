//! Tokens signed with a key that is made for the test, and the key set that goes with them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use serde_json::{Value, json};

pub struct JwtIssuer {
    key: KeyPair,
}

impl Default for JwtIssuer {
    fn default() -> Self {
        Self { key: KeyPair::generate().expect("a key") }
    }
}

impl JwtIssuer {
    /// The key set, in JSON.
    pub fn keys(&self) -> String {
        // 4, then both coordinates.
        let point = self.key.der_bytes();
        let part = |at: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[at]);
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256", "x": part(1..33), "y": part(33..65)}]})
            .to_string()
    }

    pub fn token(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k", "typ": "JWT"})), part(claims));
        let signature = self.key.sign(signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(raw(&signature)))
    }
}

/// The two numbers of a signature in DER, 32 bytes each.
fn raw(der: &[u8]) -> Vec<u8> {
    let number = |at: usize| {
        let length = usize::from(der[at + 1]);
        let digits = &der[at + 2..at + 2 + length];
        let digits = if digits.len() > 32 { &digits[digits.len() - 32..] } else { digits };
        ([vec![0; 32 - digits.len()], digits.to_vec()].concat(), at + 2 + length)
    };
    let (r, next) = number(2);
    [r, number(next).0].concat()
}

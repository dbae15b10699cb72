//! Authenticators: tokens, client certificates and forwarded certificates. Nobody gets an identity of another trust domain.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use ca::{ClientCertificate, Identity, JwkSet, TokenIssuer, TokenVerifier, TrustDomains, forwarded_identities};
use ipnet::IpNet;

/// The public key of an example in RFC 7515, A.3.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "k",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

static DOMAINS: LazyLock<TrustDomains> =
    LazyLock::new(|| TrustDomains { own: "cluster.local".to_owned(), aliases: vec!["old.example".to_owned()] });

static VERIFIER: LazyLock<TokenVerifier> = LazyLock::new(|| {
    let keys: JwkSet = serde_json::from_str(KEYS).expect("it is a JSON Web Key Set");
    let rules = vec![TokenIssuer { issuer: String::new(), keys }];
    TokenVerifier { rules, audiences: vec!["istio-ca".to_owned()] }
});

/// The first byte selects the authenticator.
pub fn authenticators(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    match first {
        b'c' => {
            if let Ok(ClientCertificate(identity)) = ClientCertificate::of(rest, &DOMAINS) {
                check(&identity);
            }
        }
        b'f' => {
            let text = String::from_utf8_lossy(rest);
            let headers: Vec<&str> = text.lines().collect();
            let trusted: [IpNet; 1] = ["10.0.0.0/8".parse().expect("a range")];
            let forwarded =
                |peer: [u8; 4]| forwarded_identities(IpAddr::V4(Ipv4Addr::from(peer)), &headers, &trusted, &DOMAINS);
            forwarded([10, 0, 0, 1]).iter().for_each(check);
            assert!(forwarded([192, 0, 2, 1]).is_empty(), "this peer may not forward anything");
        }
        _ => {
            if let Ok(identity) = VERIFIER.identity(&String::from_utf8_lossy(data), &DOMAINS) {
                check(&identity);
            }
        }
    }
}

fn check(identity: &Identity) {
    assert!(DOMAINS.contains(identity), "{identity} is of another trust domain");
    let parsed: Result<Identity, _> = identity.to_string().parse();
    assert_eq!(parsed.as_ref().ok(), Some(identity), "{identity} has parts that are no names");
}

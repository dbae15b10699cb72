//! JWKS of token issuers: the source of a rule's keys, and the fetched keys. `sources` fetches them.

use std::fmt;
use std::sync::Arc;

use crate::kinds::request_authentication::{JwtRule, RequestAuthentication};

/// The source of keys that a rule does not contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySource {
    Uri(Arc<str>),
    /// From the issuer's OpenID configuration.
    Issuer(Arc<str>),
}

/// The last fetched keys of each source. A source that is missing here has no usable keys.
pub type FetchedKeys = imbl::OrdMap<KeySource, Arc<str>>;

impl KeySource {
    /// `None`: the rule contains its keys, or has no source.
    pub fn of(rule: &JwtRule) -> Option<KeySource> {
        match rule {
            JwtRule { jwks, .. } if !jwks.is_empty() => None,
            JwtRule { jwks_uri, .. } if !jwks_uri.is_empty() => Some(KeySource::Uri(jwks_uri.as_str().into())),
            JwtRule { issuer, .. } if !issuer.is_empty() => Some(KeySource::Issuer(issuer.as_str().into())),
            _ => None,
        }
    }

    /// The sources of all rules of a policy.
    pub fn all_of(policy: &RequestAuthentication) -> impl Iterator<Item = KeySource> {
        policy.jwt_rules.iter().filter_map(KeySource::of)
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Uri(uri) => f.write_str(uri),
            KeySource::Issuer(issuer) => write!(f, "issuer {issuer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(issuer: &str, uri: &str, jwks: &str, want: Option<&str>) {
        let rule = JwtRule { issuer: issuer.into(), jwks_uri: uri.into(), jwks: jwks.into(), ..JwtRule::default() };
        assert_eq!(KeySource::of(&rule).map(|source| source.to_string()).as_deref(), want);
    }

    #[test]
    fn written_keys_go_before_a_place_and_a_place_before_the_issuer() {
        check("i", "http://a/k", "{}", None);
        check("i", "http://a/k", "", Some("http://a/k"));
        check("i", "", "", Some("issuer i"));
        check("", "", "", None);
    }
}

//! Public keys of token issuers: where a rule's keys come from, and the keys that were fetched. Fetching is a source's affair.

use std::fmt;
use std::sync::Arc;

use crate::kinds::request_authentication::{JwtRule, RequestAuthentication};

/// Keys that are not written in a rule: someone has to fetch them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeySource {
    Uri(Arc<str>),
    /// The issuer's OpenID configuration names the place.
    Issuer(Arc<str>),
}

/// What was fetched last from each source. A source that is missing here has no usable keys.
pub type FetchedKeys = imbl::OrdMap<KeySource, Arc<str>>;

impl KeySource {
    /// `None`: the rule holds its keys itself, or names no place at all.
    pub fn of(rule: &JwtRule) -> Option<KeySource> {
        match rule {
            JwtRule { jwks, .. } if !jwks.is_empty() => None,
            JwtRule { jwks_uri, .. } if !jwks_uri.is_empty() => Some(KeySource::Uri(jwks_uri.as_str().into())),
            JwtRule { issuer, .. } if !issuer.is_empty() => Some(KeySource::Issuer(issuer.as_str().into())),
            _ => None,
        }
    }

    /// Those that the policy's rules need.
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

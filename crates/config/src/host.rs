//! Host names and matching, wildcards included. Does not know which hosts exist.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

/// A host name in lower case; `*` and `*.suffix` are wildcards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Arc<str>);

impl Host {
    pub fn new(name: &str) -> Host {
        if name.bytes().any(|b| b.is_ascii_uppercase()) {
            Host(name.to_ascii_lowercase().into())
        } else {
            Host(name.into())
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with('*')
    }

    /// Some name matches both. Symmetric; `*.com` and `*.example.com` match.
    pub fn matches(&self, other: &Host) -> bool {
        self.is_subset_of(other) || other.is_subset_of(self)
    }

    /// Every name that matches this host matches `other`.
    pub fn is_subset_of(&self, other: &Host) -> bool {
        let (name, wider) = (self.as_str(), other.as_str());
        match (name.strip_prefix('*'), wider.strip_prefix('*')) {
            (Some(suffix), Some(wider)) => suffix.ends_with(wider),
            (None, Some(wider)) => name.ends_with(wider),
            (Some(_), None) => false,
            (None, None) => name == wider,
        }
    }

    /// A name without a dot means a Kubernetes service of that namespace; any other name is a full one.
    pub fn resolve_short(name: &str, namespace: &str, domain: &str) -> Host {
        if name.contains('.') || name.starts_with('*') || name.is_empty() {
            Host::new(name)
        } else {
            Host::new(&format!("{name}.{namespace}.svc.{domain}"))
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Host {
    fn from(name: &str) -> Host {
        Host::new(name)
    }
}

impl Borrow<str> for Host {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Host {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Host, D::Error> {
        Ok(Host::new(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &str, b: &str, matches: bool, subset: bool) {
        let (a, b) = (Host::new(a), Host::new(b));
        assert_eq!(a.matches(&b), matches, "{a} matches {b}");
        assert_eq!(b.matches(&a), matches, "{b} matches {a}");
        assert_eq!(a.is_subset_of(&b), subset, "{a} is a subset of {b}");
    }

    #[test]
    fn exact_and_wildcard_names_match_as_in_istiod() {
        check("a.example.com", "a.example.com", true, true);
        check("A.Example.com", "a.example.COM", true, true);
        check("a.example.com", "b.example.com", false, false);
        check("a.example.com", "*.example.com", true, true);
        check("*.example.com", "a.example.com", true, false);
        check("*.example.com", "*.com", true, true);
        check("*.com", "*.example.com", true, false);
        check("a.example.com", "*", true, true);
        check("*", "*", true, true);
        check("example.com", "*.example.com", false, false);
        check("*.example.com", "*.example.org", false, false);
    }

    #[test]
    fn only_a_name_without_a_dot_is_short() {
        let full = |name| Host::resolve_short(name, "shop", "cluster.local").to_string();
        assert_eq!(full("cart"), "cart.shop.svc.cluster.local");
        assert_eq!(full("cart.bank"), "cart.bank");
        assert_eq!(full("*"), "*");
        assert_eq!(full("*.example.com"), "*.example.com");
    }
}

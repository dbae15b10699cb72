//! The SPIFFE identity of a workload: `spiffe://<trust domain>/ns/<namespace>/sa/<account>`.

use std::{fmt, str::FromStr};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub trust_domain: String,
    pub namespace: String,
    pub service_account: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT")]
pub struct InvalidSpiffeId(pub String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/ns/{}/sa/{}", self.trust_domain, self.namespace, self.service_account)
    }
}

impl FromStr for Identity {
    type Err = InvalidSpiffeId;

    fn from_str(text: &str) -> Result<Identity, InvalidSpiffeId> {
        // Untrusted names are truncated.
        let rejected = || InvalidSpiffeId(text.chars().take(256).collect());
        let rest = text.strip_prefix("spiffe://").ok_or_else(rejected)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [trust_domain, "ns", namespace, "sa", service_account] = parts[..] else { return Err(rejected()) };
        if ![trust_domain, namespace, service_account].into_iter().all(is_name) {
            return Err(rejected());
        }
        Ok(Identity {
            trust_domain: trust_domain.to_owned(),
            namespace: namespace.to_owned(),
            service_account: service_account.to_owned(),
        })
    }
}

/// A valid path segment: no separators, quotes or white space that another parser could split at.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (1..=253).contains(&text.len()) && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let text = "spiffe://cluster.local/ns/shop/sa/cart";
        let identity: Identity = text.parse().unwrap();
        assert_eq!((&*identity.namespace, &*identity.service_account), ("shop", "cart"));
        assert_eq!(identity.to_string(), text);
    }

    #[test]
    fn rejects_everything_else() {
        for bad in [
            "",
            "cluster.local/ns/a/sa/b",
            "spiffe://cluster.local",
            "spiffe:///ns/a/sa/b",
            "spiffe://d/ns//sa/b",
            "spiffe://d/ns/a/sa/b/c",
            "spiffe://d/sa/a/ns/b",
            "spiffe://d/ns/a/sa/b c",
            "spiffe://d/ns/a/sa/b\"",
            "SPIFFE://d/ns/a/sa/b",
        ] {
            assert!(bad.parse::<Identity>().is_err(), "{bad}");
        }
    }
}

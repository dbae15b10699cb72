//! The trust domain of the mesh and its aliases.

use crate::Identity;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomains {
    pub own: String,
    pub aliases: Vec<String>,
}

impl TrustDomains {
    pub fn contains(&self, identity: &Identity) -> bool {
        identity.trust_domain == self.own || self.aliases.contains(&identity.trust_domain)
    }

    pub fn identity(&self, namespace: &str, service_account: &str) -> Identity {
        Identity {
            trust_domain: self.own.clone(),
            namespace: namespace.to_owned(),
            service_account: service_account.to_owned(),
        }
    }
}

//! Credentials of gateways: which gateway may read them, and whether they are valid. Which exist is known by the model.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use controllers::SecretAccess;
use model::{Credential, CredentialReader};
use tracing::warn;

use crate::metrics::Metrics;

pub(crate) struct GatewayCredentials {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) secret_policy: SecretPolicy,
}

/// How it is decided which service accounts may read the Secrets of their namespace.
pub(crate) enum SecretPolicy {
    /// A folder has no roles: every account of a namespace may read its Secrets.
    AllowAll,
    /// SubjectAccessReviews of the API server. Not set: the first load is not complete.
    AccessReview { access: OnceLock<SecretAccess>, cache_ttl: Duration },
}

impl views::SecretAuthorizer for GatewayCredentials {
    fn may_read(&self, reader: &CredentialReader) -> Option<bool> {
        match &self.secret_policy {
            SecretPolicy::AllowAll => Some(true),
            SecretPolicy::AccessReview { access, .. } => {
                access.get()?.may_read(&reader.namespace, &reader.service_account)
            }
        }
    }

    fn validate(&self, credential: &Credential<'_>) -> Result<(), String> {
        let now = SystemTime::now();
        let checked = match credential {
            Credential::Pair { chain, key, staple } => ca::check_key_pair(chain, key, *staple, now),
            Credential::Authorities { roots, revoked } => ca::check_ca_certificates(roots, *revoked, now),
        };
        checked.map_err(|why| why.to_string())
    }

    fn report_withheld(&self, proxy: &str, name: &str, why: &str) {
        self.metrics.credentials_withheld.inc();
        // The name comes from the proxy and may be long.
        let name: String = name.chars().take(300).collect();
        warn!(proxy, name, why, "secret withheld from a gateway");
    }
}

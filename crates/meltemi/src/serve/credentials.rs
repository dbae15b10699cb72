//! What is decided about the credentials of gateways: who may read them, and whether they can be used. Which there are, and whose, is the model's.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use controllers::Access;
use model::{Credential, Reader};
use tracing::warn;

use crate::ops::metrics::Metrics;

pub(crate) struct Credentials {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) roles: Roles,
}

/// Who says which accounts may read the Secrets of their namespace.
pub(crate) enum Roles {
    /// A folder has none: its objects are everybody's of their namespace.
    None,
    /// The API server's. Not set: it has not been read yet.
    Cluster { access: OnceLock<Access>, fresh: Duration },
}

impl views::Guard for Credentials {
    fn may_read(&self, reader: &Reader) -> Option<bool> {
        match &self.roles {
            Roles::None => Some(true),
            Roles::Cluster { access, .. } => access.get()?.may_read(&reader.namespace, &reader.service_account),
        }
    }

    fn inspect(&self, credential: &Credential<'_>) -> Result<(), String> {
        let now = SystemTime::now();
        let checked = match credential {
            Credential::Pair { chain, key, staple } => ca::usable_pair(chain, key, *staple, now),
            Credential::Authorities { roots, revoked } => ca::usable_authorities(roots, *revoked, now),
        };
        checked.map_err(|why| why.to_string())
    }

    fn withheld(&self, proxy: &str, name: &str, why: &str) {
        self.metrics.credentials_withheld.inc();
        // A name is the proxy's word.
        let name: String = name.chars().take(300).collect();
        warn!(proxy, name, why, "a proxy waits for a secret that it does not get");
    }
}

//! What is decided about the credentials of gateways: who may read them, and whether they can be used. Which there are, and whose, is the model's.

use std::sync::Arc;
use std::time::SystemTime;

use model::{Credential, Reader};
use tracing::warn;

use crate::ops::metrics::Metrics;

pub(crate) struct Credentials {
    pub(crate) metrics: Arc<Metrics>,
    /// A folder has no roles: its objects are everybody's of their namespace. In a cluster a role would have to say so, which is not asked
    /// of the API server yet, so that nobody gets a Secret there.
    pub(crate) without_roles: bool,
}

impl views::Guard for Credentials {
    fn may_read(&self, _reader: &Reader) -> bool {
        self.without_roles
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

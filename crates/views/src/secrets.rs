//! The secrets of one authenticated stream (SDS): looked up when requested, and again when their sources change. Access is decided for each
//! proxy; only the encoded secret is shared.

mod cache;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Credential, CredentialName, CredentialReader, Delta, Placement};
use xds::{Changes, Resource, Seq};

pub(crate) use cache::SecretCache;

use crate::dependencies;
use cache::{ServedSecret, Withheld};

/// Decides on access to credentials. Called from streams, so it must answer from memory.
pub trait SecretAuthorizer: Send + Sync {
    /// Whether a service account may read the Secrets of its namespace. `None`: the review is under way; the secret is withheld without a
    /// report until [`Views::recheck_secrets`](crate::Views::recheck_secrets) is called.
    fn may_read(&self, reader: &CredentialReader) -> Option<bool>;

    /// Whether clients and proxies can use the credential, or the reason why not. Called once for each content.
    fn validate(&self, credential: &Credential<'_>) -> Result<(), String>;

    /// A proxy requested a secret that is withheld. Called once for each stream, name and reason.
    fn report_withheld(&self, proxy: &str, name: &str, why: &str);
}

/// Limit of names that one stream may request during its life. No gateway needs as many.
const MAX_NAMES: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Secrets {
    cache: Arc<SecretCache>,
    reader: CredentialReader,
    /// Of the stream's own proxy: a placement names another proxy of the class.
    proxy_id: Arc<str>,
    requested: Mutex<BTreeMap<Arc<str>, RequestedSecret>>,
}

/// A requested name and what was found for it.
#[derive(Debug)]
struct RequestedSecret {
    /// `None`: no credential can have this name.
    credential: Option<CredentialName>,
    /// `None`: withheld for the reason in `why`, or the access review is pending.
    resource: Option<Arc<Resource>>,
    /// Why the newest content is withheld. Empty: it is not.
    why: String,
    /// The sequence at which the resource last changed.
    at: Seq,
}

/// Why requested names are looked up again.
#[derive(Clone, Copy)]
pub(crate) enum Recheck<'a> {
    Changed(&'a Delta),
    /// The authorizer's decisions may have changed.
    Everything,
}

impl Secrets {
    pub(crate) fn new(cache: Arc<SecretCache>, reader: CredentialReader, proxy_id: Arc<str>) -> Self {
        Self { cache, reader, proxy_id, requested: Mutex::default() }
    }

    /// `None`: withheld. The stream is notified once the secret is available.
    pub(crate) fn named(&self, placement: impl Fn() -> Placement, name: &str) -> Option<Arc<Resource>> {
        // The lock is held until the answer is stored, so that a concurrent change is rechecked after it.
        let mut requested = self.requested();
        if requested.len() >= MAX_NAMES && !requested.contains_key(name) {
            return None;
        }
        let entry = requested.entry(Arc::from(name)).or_insert_with_key(|name| RequestedSecret::new(name));
        self.look_up(entry, name, &placement());
        entry.resource.clone()
    }

    /// A deleted secret is not removed from the proxy: its listeners would stop working, without any gain in security.
    pub(crate) fn since(&self, since: Seq) -> Changes {
        let requested = self.requested();
        let new = requested.values().filter(|requested| requested.at > since || since == 0);
        let changed = new.filter_map(|requested| requested.resource.clone()).collect();
        Changes { seq: self.cache.seq(), changed, full: since == 0, ..Changes::default() }
    }

    /// Returns whether a requested secret changed.
    pub(crate) fn recheck(&self, recheck: Recheck<'_>, placement: &Placement) -> bool {
        let mut changed = false;
        for (name, entry) in self.requested().iter_mut() {
            if entry.credential.as_ref().is_some_and(|credential| recheck.concerns(credential, &self.reader)) {
                changed |= self.look_up(entry, name, placement);
            }
        }
        changed
    }

    /// Returns whether the resource changed.
    fn look_up(&self, requested: &mut RequestedSecret, name: &str, placement: &Placement) -> bool {
        match self.cache.get(name, requested.credential.as_ref(), &self.reader, placement) {
            Ok(ServedSecret { resource, invalid }) => {
                self.report(requested, name, invalid.unwrap_or_default());
                let same = requested.resource.as_ref().is_some_and(|current| current.version == resource.version);
                if !same {
                    requested.at = self.cache.seq();
                    requested.resource = Some(resource);
                }
                !same
            }
            Err(Withheld::Pending) => {
                requested.resource = None;
                false
            }
            Err(Withheld::Denied(why)) => {
                requested.resource = None;
                self.report(requested, name, why);
                false
            }
        }
    }

    /// Reports why the newest content is withheld, once for each reason. Empty: it is not.
    fn report(&self, requested: &mut RequestedSecret, name: &str, why: String) {
        if !why.is_empty() && requested.why != why {
            self.cache.authorizer.report_withheld(&self.proxy_id, name, &why);
        }
        requested.why = why;
    }

    // Entries are changed by assignments that cannot panic between each other.
    fn requested(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, RequestedSecret>> {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestedSecret {
    fn new(name: &str) -> Self {
        Self { credential: name.parse().ok(), resource: None, why: String::new(), at: 0 }
    }
}

impl Recheck<'_> {
    fn concerns(self, credential: &CredentialName, reader: &CredentialReader) -> bool {
        match self {
            Self::Everything => true,
            Self::Changed(delta) => dependencies::touches_secret(delta, credential, reader),
        }
    }
}

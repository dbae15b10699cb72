//! Which keys the policies need, and for which namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::diagnostic::ObjectId;
use config::jwks::KeySource;
use config::kind::Kind;
use config::kinds::request_authentication::RequestAuthentication;
use config::meta::Object;
use config::object::AnyObject;
use config::store::{Table, Update};

/// istiod's default for a rule without a timeout.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sources of one namespace; far more than a tenant has issuers.
pub(super) const MOST_PER_NAMESPACE: usize = 500;

/// A request for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRequest {
    /// The longest of the rules': a rule of one namespace must not cut off another's.
    pub timeout: Duration,
    /// The policy that gets the diagnostic of a failure.
    pub object: ObjectId,
    /// The namespaces whose policies need it. Empty: those that do have too many sources, so that it is not fetched.
    pub namespaces: BTreeSet<Arc<str>>,
}

pub type KeyRequests = BTreeMap<KeySource, KeyRequest>;

/// The keys that the policies need. Of several policies with the same source, the first gets the diagnostic.
pub fn wanted(policies: &Table<RequestAuthentication>) -> KeyRequests {
    let mut wanted = KeyRequests::new();
    let mut counts = BTreeMap::new();
    policies.values().for_each(|object| add(&mut wanted, &mut counts, object));
    wanted
}

/// Adds the keys that these updates need. Returns whether any is new.
pub fn add_key_requests(wanted: &mut KeyRequests, updates: &[Update]) -> bool {
    let mut counts: Option<BTreeMap<Arc<str>, usize>> = None;
    let before = wanted.len();
    for update in updates {
        if let Update::Put(AnyObject::RequestAuthentication(object)) = update {
            let counts = counts.get_or_insert_with(|| sources_by_namespace(wanted));
            add(wanted, counts, object);
        }
    }
    wanted.len() > before
}

fn sources_by_namespace(wanted: &KeyRequests) -> BTreeMap<Arc<str>, usize> {
    let mut counts = BTreeMap::new();
    for namespace in wanted.values().flat_map(|request| &request.namespaces) {
        *counts.entry(namespace.clone()).or_default() += 1;
    }
    counts
}

fn add(
    wanted: &mut KeyRequests,
    counts: &mut BTreeMap<Arc<str>, usize>,
    Object { meta, spec }: &Object<RequestAuthentication>,
) {
    let count = counts.entry(meta.namespace.clone()).or_default();
    for rule in &spec.jwt_rules {
        let Some(source) = KeySource::of(rule) else { continue };
        let timeout = rule.timeout.map_or(DEFAULT_TIMEOUT, config::duration::Duration::to_std);
        let request = wanted.entry(source).or_insert_with(|| KeyRequest {
            timeout,
            object: ObjectId {
                kind: Kind::RequestAuthentication,
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
            },
            namespaces: BTreeSet::new(),
        });
        request.timeout = request.timeout.max(timeout);
        if *count < MOST_PER_NAMESPACE && request.namespaces.insert(meta.namespace.clone()) {
            *count += 1;
        }
    }
}

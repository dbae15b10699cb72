//! RequestAuthentications by namespace, and the JWT rules of one workload, sorted by issuer.

use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::jwks::{FetchedKeys, KeySource};
use config::kind::Kind;
use config::kinds::request_authentication::{JwtRule, RequestAuthentication};
use config::labels::Labels;
use config::meta::Object;
use config::store::Table;

use super::by_namespace::ByNamespace;

/// A JWT rule of a workload, with its keys.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenRule {
    pub rule: JwtRule,
    /// `None`: there are none, or they are not fetched yet. No token is valid then.
    pub keys: Option<Arc<str>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RequestAuthentications {
    by_namespace: ByNamespace<Object<RequestAuthentication>>,
}

impl RequestAuthentications {
    pub(crate) fn new(objects: &Table<RequestAuthentication>) -> Self {
        Self { by_namespace: ByNamespace::new(objects, Arc::clone) }
    }

    /// After a change of the objects of this namespace.
    pub(crate) fn rebuild(&mut self, namespace: &Arc<str>, objects: &Table<RequestAuthentication>) {
        self.by_namespace.rebuild(namespace, objects, Arc::clone);
    }

    pub(super) fn of_workload(
        &self,
        root: &str,
        namespace: &str,
        labels: &Labels,
    ) -> Vec<&Arc<Object<RequestAuthentication>>> {
        let near_first = self.by_namespace.in_each(&[namespace, root]);
        near_first
            .filter(|object| super::attachment::applies(&object.spec, &object.meta.namespace, namespace, labels))
            .collect()
    }

    /// Namespaces with a policy that reads these keys.
    pub(crate) fn readers(&self, source: &KeySource) -> impl Iterator<Item = &Arc<str>> {
        let reads =
            |object: &&Arc<Object<RequestAuthentication>>| KeySource::all_of(&object.spec).any(|one| one == *source);
        self.by_namespace.all().filter(reads).map(|object| &object.meta.namespace)
    }
}

pub(super) fn tokens(policies: &[&Arc<Object<RequestAuthentication>>], fetched: &FetchedKeys) -> Vec<TokenRule> {
    let rules = policies.iter().flat_map(|object| &object.spec.jwt_rules);
    let mut tokens: Vec<_> = rules.map(|rule| TokenRule { rule: rule.clone(), keys: keys(rule, fetched) }).collect();
    // A stable sort: among equal issuers the nearer and older policy stays first.
    tokens.sort_by(|a, b| a.rule.issuer.cmp(&b.rule.issuer));
    tokens
}

fn keys(rule: &JwtRule, fetched: &FetchedKeys) -> Option<Arc<str>> {
    if !rule.jwks.is_empty() {
        return Some(rule.jwks.as_str().into());
    }
    fetched.get(&KeySource::of(rule)?).cloned()
}

pub(super) fn id(object: &Object<RequestAuthentication>) -> ObjectId {
    ObjectId {
        kind: Kind::RequestAuthentication,
        namespace: object.meta.namespace.clone(),
        name: object.meta.name.clone(),
    }
}

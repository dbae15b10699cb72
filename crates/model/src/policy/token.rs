//! RequestAuthentications by namespace, and the tokens that one workload takes: all rules that hold for it, in the order of their issuers.

use std::sync::Arc;

use config::jwks::{FetchedKeys, KeySource};
use config::kind::Kind;
use config::kinds::request_authentication::{JwtRule, RequestAuthentication};
use config::labels::Labels;
use config::meta::Object;
use config::note::ObjectId;
use config::store::Table;

use super::by_namespace::ByNamespace;

/// A kind of token that a workload takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub rule: JwtRule,
    /// `None`: there are none, or none yet. No token can be good then.
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
    pub(crate) fn renew(&mut self, namespace: &Arc<str>, objects: &Table<RequestAuthentication>) {
        self.by_namespace.renew(namespace, objects, Arc::clone);
    }

    pub(super) fn of_workload(
        &self,
        root: &str,
        namespace: &str,
        labels: &Labels,
    ) -> Vec<&Arc<Object<RequestAuthentication>>> {
        let near_first = self.by_namespace.in_both(namespace, root);
        near_first
            .filter(|object| super::attachment::holds(&object.spec, &object.meta.namespace, namespace, labels))
            .collect()
    }

    /// Namespaces with a policy that reads these keys.
    pub(crate) fn readers(&self, source: &KeySource) -> impl Iterator<Item = &Arc<str>> {
        let reads =
            |object: &&Arc<Object<RequestAuthentication>>| KeySource::all_of(&object.spec).any(|one| one == *source);
        self.by_namespace.all().filter(reads).map(|object| &object.meta.namespace)
    }
}

pub(super) fn tokens(policies: &[&Arc<Object<RequestAuthentication>>], fetched: &FetchedKeys) -> Vec<Token> {
    let rules = policies.iter().flat_map(|object| &object.spec.jwt_rules);
    let mut tokens: Vec<_> = rules.map(|rule| Token { rule: rule.clone(), keys: keys(rule, fetched) }).collect();
    // Stable: among equal issuers the nearer and older policy stays first.
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

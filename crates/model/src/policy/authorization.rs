//! AuthorizationPolicies by namespace, and those that hold for one workload by what they do.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kind::Kind;
use config::kinds::authorization_policy::{Action, AuthorizationPolicy};
use config::labels::Labels;
use config::mesh::MeshConfig;
use config::meta::Object;
use config::note::{Note, ObjectId};
use config::store::Table;

use super::authorizer::{Authorizer, Authorizers};
use super::by_namespace::ByNamespace;
use super::rule::Rule;
use super::trust_domain::TrustDomains;

/// One AuthorizationPolicy, read.
#[derive(Debug, PartialEq)]
pub struct Policy {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// It is evaluated and reported, and decides nothing.
    pub dry_run: bool,
    /// Empty: it never matches.
    pub rules: Vec<Rule>,
    object: Arc<Object<AuthorizationPolicy>>,
}

/// What decides about requests to a workload, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Authorization {
    /// By provider.
    pub custom: BTreeMap<String, Custom>,
    pub audit: Vec<Arc<Policy>>,
    pub deny: Vec<Arc<Policy>>,
    pub allow: Vec<Arc<Policy>>,
}

/// Requests that another service decides about.
#[derive(Debug, Clone, PartialEq)]
pub struct Custom {
    pub policies: Vec<Arc<Policy>>,
    /// `None`: it cannot be asked, so that the requests in question are denied.
    pub authorizer: Option<Arc<Authorizer>>,
}

impl Authorization {
    /// Nobody says which of several to ask: none of them is.
    pub(super) fn refuse_several(&mut self) {
        if self.custom.len() > 1 {
            self.custom.values_mut().for_each(|custom| custom.authorizer = None);
        }
    }
}

impl Policy {
    fn new(object: &Arc<Object<AuthorizationPolicy>>, domains: &TrustDomains) -> Self {
        let Object { meta, spec } = &**object;
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            dry_run: meta.annotations.get("istio.io/dry-run").is_some_and(is_true),
            rules: spec.rules.iter().map(|rule| Rule::new(rule, &meta.namespace, domains)).collect(),
            object: object.clone(),
        }
    }

    pub fn id(&self) -> ObjectId {
        ObjectId { kind: Kind::AuthorizationPolicy, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    fn provider(&self) -> &str {
        self.object.spec.provider.as_ref().map_or("", |provider| &provider.name)
    }

    fn note(&self, what: String, field: &str) -> Note {
        let note = Note::warning(what).on(self.id()).field(field);
        match &self.object.meta.at {
            Some(at) => note.at(at.clone()),
            None => note,
        }
    }
}

/// Go's spellings of true; what cannot be read is not.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AuthorizationPolicies {
    by_namespace: ByNamespace<Policy>,
}

impl AuthorizationPolicies {
    pub(crate) fn new(objects: &Table<AuthorizationPolicy>, config: &MeshConfig) -> Self {
        let domains = TrustDomains::new(&config.trust_domain, &config.trust_domain_aliases);
        Self { by_namespace: ByNamespace::new(objects, |object| Arc::new(Policy::new(object, &domains))) }
    }

    /// After a change of the objects of this namespace.
    pub(crate) fn renew(&mut self, namespace: &Arc<str>, objects: &Table<AuthorizationPolicy>, config: &MeshConfig) {
        let domains = TrustDomains::new(&config.trust_domain, &config.trust_domain_aliases);
        self.by_namespace.renew(namespace, objects, |object| Arc::new(Policy::new(object, &domains)));
    }

    pub(crate) fn of_workload(
        &self,
        root: &str,
        namespace: &str,
        labels: &Labels,
        authorizers: &Authorizers,
    ) -> Authorization {
        let mut found = Authorization::default();
        for policy in self.by_namespace.in_both(root, namespace) {
            if !super::attachment::holds(&policy.object.spec, &policy.namespace, namespace, labels) {
                continue;
            }
            let list = match policy.object.spec.action {
                Action::Allow => &mut found.allow,
                Action::Deny => &mut found.deny,
                Action::Audit => &mut found.audit,
                Action::Custom => {
                    let asked = || Custom {
                        policies: Vec::new(),
                        authorizer: authorizers.named(policy.provider()).ok().cloned(),
                    };
                    &mut found.custom.entry(policy.provider().to_owned()).or_insert_with(asked).policies
                }
            };
            list.push(policy.clone());
        }
        found
    }

    /// What of these policies is in force in another way than it was written.
    pub(crate) fn notes(&self, authorizers: &Authorizers) -> Vec<Note> {
        let mut notes = Vec::new();
        for policy in self.by_namespace.all() {
            let action = policy.object.spec.action;
            if action == Action::Custom
                && let Err(fault) = authorizers.named(policy.provider())
            {
                let what = format!("requests that match are denied, because nobody can be asked: {fault}");
                notes.push(policy.note(what, "spec.provider.name"));
            }
            for (at, rule) in policy.rules.iter().enumerate() {
                let effect = match action {
                    Action::Allow => "the rule allows nothing",
                    Action::Deny | Action::Audit | Action::Custom => "the rule matches without it",
                };
                notes.extend(rule.unknown().map(|key| {
                    policy.note(format!("condition {key:?} is not known; {effect}"), &format!("spec.rules[{at}].when"))
                }));
            }
        }
        notes.sort();
        notes.dedup();
        notes
    }
}

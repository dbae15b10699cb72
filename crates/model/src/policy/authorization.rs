//! AuthorizationPolicies by namespace, and those of one workload by action.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use config::kind::Kind;
use config::kinds::authorization_policy::{Action, AuthorizationPolicy};
use config::labels::Labels;
use config::mesh::MeshConfig;
use config::meta::Object;
use config::store::Table;

use super::authorizer::{Authorizer, Authorizers};
use super::by_namespace::ByNamespace;
use super::rule::AuthorizationRule;
use super::trust_domain::TrustDomains;

/// One parsed AuthorizationPolicy.
#[derive(Debug, PartialEq)]
pub struct WorkloadPolicy {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// It is evaluated and reported, but not enforced.
    pub dry_run: bool,
    /// Empty: it never matches.
    pub rules: Vec<AuthorizationRule>,
    object: Arc<Object<AuthorizationPolicy>>,
}

/// The policies that authorize requests to a workload, in the order of evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Authorization {
    /// By provider.
    pub custom: BTreeMap<String, CustomAuthorization>,
    pub audit: Vec<Arc<WorkloadPolicy>>,
    pub deny: Vec<Arc<WorkloadPolicy>>,
    pub allow: Vec<Arc<WorkloadPolicy>>,
}

/// Requests that an external provider authorizes.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomAuthorization {
    pub policies: Vec<Arc<WorkloadPolicy>>,
    /// `None`: the provider cannot be called, so that the matching requests are denied.
    pub authorizer: Option<Arc<Authorizer>>,
}

impl Authorization {
    /// Several providers for one workload are not supported by default: none of them is called.
    pub(super) fn reject_multiple_providers(&mut self) {
        if self.custom.len() > 1 {
            self.custom.values_mut().for_each(|custom| custom.authorizer = None);
        }
    }
}

impl WorkloadPolicy {
    fn new(object: &Arc<Object<AuthorizationPolicy>>, domains: &TrustDomains) -> Self {
        let Object { meta, spec } = &**object;
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            dry_run: meta.annotations.get("istio.io/dry-run").is_some_and(is_true),
            rules: spec.rules.iter().map(|rule| AuthorizationRule::new(rule, &meta.namespace, domains)).collect(),
            object: object.clone(),
        }
    }

    pub fn id(&self) -> ObjectId {
        ObjectId { kind: Kind::AuthorizationPolicy, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    fn provider(&self) -> &str {
        self.object.spec.provider.as_ref().map_or("", |provider| &provider.name)
    }

    fn diagnostic(&self, what: String, field: &str) -> Diagnostic {
        let diagnostic = Diagnostic::warning(what).on(self.id()).field(field);
        match &self.object.meta.at {
            Some(at) => diagnostic.at(at.clone()),
            None => diagnostic,
        }
    }
}

/// Go's spellings of true; anything else is false.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AuthorizationPolicies {
    by_namespace: ByNamespace<WorkloadPolicy>,
}

impl AuthorizationPolicies {
    pub(crate) fn new(objects: &Table<AuthorizationPolicy>, config: &MeshConfig) -> Self {
        let domains = TrustDomains::new(&config.trust_domain, &config.trust_domain_aliases);
        Self { by_namespace: ByNamespace::new(objects, |object| Arc::new(WorkloadPolicy::new(object, &domains))) }
    }

    /// After a change of the objects of this namespace.
    pub(crate) fn rebuild(&mut self, namespace: &Arc<str>, objects: &Table<AuthorizationPolicy>, config: &MeshConfig) {
        let domains = TrustDomains::new(&config.trust_domain, &config.trust_domain_aliases);
        self.by_namespace.rebuild(namespace, objects, |object| Arc::new(WorkloadPolicy::new(object, &domains)));
    }

    /// `homes`: the namespaces whose policies may apply to the workload.
    pub(crate) fn of_workload(
        &self,
        homes: &[&str],
        namespace: &str,
        labels: &Labels,
        authorizers: &Authorizers,
    ) -> Authorization {
        let mut found = Authorization::default();
        for policy in self.by_namespace.in_each(homes) {
            if !super::attachment::applies(&policy.object.spec, &policy.namespace, namespace, labels) {
                continue;
            }
            let list = match policy.object.spec.action {
                Action::Allow => &mut found.allow,
                Action::Deny => &mut found.deny,
                Action::Audit => &mut found.audit,
                Action::Custom => {
                    let asked = || CustomAuthorization {
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

    /// Policies whose effect differs from what was written.
    pub(crate) fn diagnostics(&self, authorizers: &Authorizers) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for policy in self.by_namespace.all() {
            let action = policy.object.spec.action;
            if action == Action::Custom
                && let Err(fault) = authorizers.named(policy.provider())
            {
                let what = format!("requests that match are denied, because nobody can be asked: {fault}");
                diagnostics.push(policy.diagnostic(what, "spec.provider.name"));
            }
            for (at, rule) in policy.rules.iter().enumerate() {
                let effect = match action {
                    Action::Allow => "the rule allows nothing",
                    Action::Deny | Action::Audit | Action::Custom => "the rule matches without it",
                };
                diagnostics.extend(rule.unknown().map(|key| {
                    policy.diagnostic(
                        format!("condition {key:?} is not known; {effect}"),
                        &format!("spec.rules[{at}].when"),
                    )
                }));
            }
        }
        diagnostics.sort();
        diagnostics.dedup();
        diagnostics
    }
}

//! Request policies of a workload: authorization and accepted tokens. Mutual TLS is in `authn`.

pub(crate) mod attachment;
mod authorization;
mod authorizer;
mod by_namespace;
mod rule;
mod token;
mod trust_domain;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use config::diagnostic::{Diagnostic, ObjectId};
use config::labels::Labels;

use crate::mesh::Mesh;

pub use authorization::{Authorization, CustomAuthorization, WorkloadPolicy};
pub use authorizer::Authorizer;
pub use rule::{AuthorizationRule, OperationAttribute, SourceAttribute, Term};
pub use token::TokenRule;

pub(crate) use authorization::AuthorizationPolicies;
pub(crate) use authorizer::Authorizers;
pub(crate) use token::RequestAuthentications;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    pub authorization: Authorization,
    pub tokens: Vec<TokenRule>,
    /// The objects that they come from.
    pub made_from: Vec<ObjectId>,
}

impl Policies {
    pub(crate) fn new(mesh: &Mesh, namespace: &str, labels: &Labels) -> Arc<Self> {
        let root = &mesh.config.root_namespace;
        let mut authorization = mesh.authorization.of_workload(root, namespace, labels, &mesh.authorizers);
        if !mesh.env.multiple_authorizers {
            authorization.reject_multiple_providers();
        }
        let authentications = mesh.request_authentications.of_workload(root, namespace, labels);
        let mut made_from: Vec<_> = authorization.policies().map(WorkloadPolicy::id).collect();
        made_from.extend(authentications.iter().map(|object| token::id(object)));
        made_from.sort();
        if made_from.is_empty() {
            static NONE: LazyLock<Arc<Policies>> = LazyLock::new(Arc::default);
            return NONE.clone();
        }
        Arc::new(Self { tokens: token::tokens(&authentications, &mesh.objects.keys), authorization, made_from })
    }
}

impl Authorization {
    fn policies(&self) -> impl Iterator<Item = &WorkloadPolicy> {
        let custom = self.custom.values().flat_map(|custom| &custom.policies);
        custom.chain(&self.audit).chain(&self.deny).chain(&self.allow).map(|policy| &**policy)
    }
}

impl Mesh {
    /// Diagnostics on policies whose effect differs from what was written.
    pub fn policy_diagnostics(&self) -> Vec<Diagnostic> {
        self.authorization.diagnostics(&self.authorizers)
    }
}

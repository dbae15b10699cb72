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
use crate::placement::Placement;
use crate::service::Service;

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
        let authorization = Authorization::of(mesh, &[root, namespace], namespace, labels);
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
    fn of(mesh: &Mesh, homes: &[&str], namespace: &str, labels: &Labels) -> Self {
        let mut found = mesh.authorization.of_workload(homes, namespace, labels, &mesh.authorizers);
        if !mesh.env.multiple_authorizers {
            found.reject_multiple_providers();
        }
        found
    }

    pub fn policies(&self) -> impl Iterator<Item = &WorkloadPolicy> {
        let custom = self.custom.values().flat_map(|custom| &custom.policies);
        custom.chain(&self.audit).chain(&self.deny).chain(&self.allow).map(|policy| &**policy)
    }
}

impl Mesh {
    /// The policies of a client's connections to a host that is resolved per request: its own, and those of the service's namespace that select it.
    pub fn outbound_authorization(&self, placement: &Placement, service: &Service) -> Authorization {
        let (root, own) = (&*self.config.root_namespace, &*placement.proxy.namespace);
        Authorization::of(self, &[root, own, &service.namespace], own, &placement.labels)
    }

    /// All policies that may be among them, whatever the client imports. Empty: no host is resolved per request.
    pub(crate) fn outbound_policies(&self, namespace: &str, labels: &Labels) -> Vec<ObjectId> {
        let there = self.entry_services.dynamic_namespaces();
        if there.is_empty() {
            return Vec::new();
        }
        let homes: Vec<_> =
            [&*self.config.root_namespace, namespace].into_iter().chain(there.iter().map(|it| &**it)).collect();
        let found = self.authorization.of_workload(&homes, namespace, labels, &self.authorizers);
        let mut ids: Vec<_> = found.policies().map(WorkloadPolicy::id).collect();
        ids.sort();
        ids
    }

    /// Diagnostics on policies whose effect differs from what was written.
    pub fn policy_diagnostics(&self) -> Vec<Diagnostic> {
        self.authorization.diagnostics(&self.authorizers)
    }
}

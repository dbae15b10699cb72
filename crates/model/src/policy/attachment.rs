//! Whether a policy applies to a workload: the fields of each kind that decide it. The decision itself is in [`Attachment`].

use config::kinds::authorization_policy::AuthorizationPolicy;
use config::kinds::envoy_filter::EnvoyFilter;
use config::kinds::request_authentication::RequestAuthentication;
use config::kinds::wasm_plugin::WasmPlugin;
use config::labels::{Labels, Selector};

use crate::attachment::Attachment;

/// A policy that selects workloads.
pub(crate) trait SelectsWorkloads {
    fn attachment(&self) -> Attachment<'_>;
}

impl SelectsWorkloads for AuthorizationPolicy {
    fn attachment(&self) -> Attachment<'_> {
        Attachment::new(match_labels(self.selector.as_ref()), &self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for RequestAuthentication {
    fn attachment(&self) -> Attachment<'_> {
        Attachment::new(match_labels(self.selector.as_ref()), &self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for WasmPlugin {
    fn attachment(&self) -> Attachment<'_> {
        Attachment::new(match_labels(self.selector.as_ref()), &self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for EnvoyFilter {
    fn attachment(&self) -> Attachment<'_> {
        Attachment::new(self.workload_selector.as_ref().map(|selector| &selector.labels), &self.target_refs, None)
    }
}

fn match_labels(selector: Option<&Selector>) -> Option<&Labels> {
    selector.map(|selector| &selector.match_labels)
}

/// `home`: the namespace of the policy; the caller has checked that it is the workload's or the root namespace.
pub(crate) fn applies(policy: &impl SelectsWorkloads, home: &str, namespace: &str, labels: &Labels) -> bool {
    policy.attachment().applies(home, namespace, labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::GATEWAY_NAME;
    use config::kinds::target_ref::TargetRef;

    fn policy(selector: Option<&str>, target: Option<(&str, &str)>) -> AuthorizationPolicy {
        let selector = selector.map(|app| Selector { match_labels: [("app", app)].into_iter().collect() });
        let target = target.map(|(kind, name)| TargetRef {
            group: "gateway.networking.k8s.io".into(),
            kind: kind.into(),
            name: name.into(),
            namespace: String::new(),
        });
        AuthorizationPolicy { selector, target_refs: target.into_iter().collect(), ..Default::default() }
    }

    fn check(policy: &AuthorizationPolicy, home: &str, labels: &[(&str, &str)], want: bool) {
        let labels: Labels = labels.iter().copied().collect();
        assert_eq!(applies(policy, home, "shop", &labels), want, "{policy:?} {labels:?}");
    }

    #[test]
    fn a_selector_asks_for_its_labels_and_none_for_nothing() {
        check(&policy(None, None), "shop", &[], true);
        check(&policy(Some("cart"), None), "shop", &[("app", "cart"), ("v", "1")], true);
        check(&policy(Some("cart"), None), "shop", &[("app", "web")], false);
        check(&policy(Some("cart"), None), "root", &[("app", "cart")], true);
    }

    #[test]
    fn a_target_is_the_gateway_of_the_workload_in_the_policys_namespace() {
        let edge = [("app", "edge"), (GATEWAY_NAME, "edge")];
        check(&policy(None, Some(("Gateway", "edge"))), "shop", &edge, true);
        check(&policy(None, Some(("Gateway", "other"))), "shop", &edge, false);
        check(&policy(None, Some(("Gateway", "edge"))), "root", &edge, false);
        check(&policy(None, Some(("Service", "edge"))), "shop", &edge, false);
        check(&policy(None, Some(("Gateway", "edge"))), "shop", &edge[..1], false);
        check(&policy(Some("web"), Some(("Gateway", "edge"))), "shop", &edge, true);
    }

    #[test]
    fn the_older_spelling_of_a_single_target_counts() {
        let mut policy = policy(None, Some(("Gateway", "edge")));
        policy.target_ref = policy.target_refs.pop();
        check(&policy, "shop", &[(GATEWAY_NAME, "edge")], true);
        check(&policy, "shop", &[], false);
    }
}

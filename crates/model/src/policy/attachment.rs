//! Whether a policy applies to a workload: by its selector, or by naming the Gateway that the workload is an instance of.

use config::kinds::authorization_policy::AuthorizationPolicy;
use config::kinds::envoy_filter::EnvoyFilter;
use config::kinds::request_authentication::RequestAuthentication;
use config::kinds::target_ref::TargetRef;
use config::kinds::wasm_plugin::WasmPlugin;
use config::labels::Labels;

/// Label on the pods of a Kubernetes Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// A policy that selects workloads.
pub(crate) trait SelectsWorkloads {
    /// Labels that a workload must have; `None`: all workloads.
    fn selector(&self) -> Option<&Labels>;
    fn targets(&self) -> &[TargetRef];
}

impl SelectsWorkloads for AuthorizationPolicy {
    fn selector(&self) -> Option<&Labels> {
        self.selector.as_ref().map(|selector| &selector.match_labels)
    }

    fn targets(&self) -> &[TargetRef] {
        target_refs(&self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for RequestAuthentication {
    fn selector(&self) -> Option<&Labels> {
        self.selector.as_ref().map(|selector| &selector.match_labels)
    }

    fn targets(&self) -> &[TargetRef] {
        target_refs(&self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for WasmPlugin {
    fn selector(&self) -> Option<&Labels> {
        self.selector.as_ref().map(|selector| &selector.match_labels)
    }

    fn targets(&self) -> &[TargetRef] {
        target_refs(&self.target_refs, self.target_ref.as_ref())
    }
}

impl SelectsWorkloads for EnvoyFilter {
    fn selector(&self) -> Option<&Labels> {
        self.workload_selector.as_ref().map(|selector| &selector.labels)
    }

    fn targets(&self) -> &[TargetRef] {
        &self.target_refs
    }
}

fn target_refs<'a>(list: &'a [TargetRef], single: Option<&'a TargetRef>) -> &'a [TargetRef] {
    if list.is_empty() { single.map_or(&[], std::slice::from_ref) } else { list }
}

/// `home`: the namespace of the policy; the caller has checked that it is the workload's or the root namespace.
pub(crate) fn applies(policy: &impl SelectsWorkloads, home: &str, namespace: &str, labels: &Labels) -> bool {
    let targets = policy.targets();
    if targets.is_empty() {
        return policy.selector().is_none_or(|wanted| labels.contains_all(wanted));
    }
    let Some(gateway) = labels.get(GATEWAY_NAME) else { return false };
    let names = |target: &TargetRef| {
        target.group == "gateway.networking.k8s.io" && target.kind == "Gateway" && target.name == gateway
    };
    // References to other namespaces are not supported, as in istiod.
    let near = |target: &TargetRef| target.namespace.is_empty() || target.namespace == namespace;
    home == namespace && targets.iter().any(|target| names(target) && near(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::labels::Selector;

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

//! Whether a pod is injected, and why: istiod's rules in istiod's order.

use std::fmt;

use config::labels::Labels;
use config::mesh::LabelSelector;

use crate::injector_config::{InjectorConfig, Policy};
use crate::pod::Pod;

const INJECT: &str = "sidecar.istio.io/inject";
/// Pods of the system are never injected.
const IGNORED_NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    HostNetwork,
    IgnoredNamespace,
    /// The label `sidecar.istio.io/inject`.
    Label,
    /// The annotation of that name.
    Annotation,
    NeverSelector,
    AlwaysSelector,
    Policy,
    InvalidPolicy(String),
}

impl Reason {
    /// For output that is read by programs.
    pub fn id(&self) -> &'static str {
        match self {
            Reason::HostNetwork => "host-network",
            Reason::IgnoredNamespace => "ignored-namespace",
            Reason::Label => "pod-label",
            Reason::Annotation => "pod-annotation",
            Reason::NeverSelector => "never-inject-selector",
            Reason::AlwaysSelector => "always-inject-selector",
            Reason::Policy => "policy",
            Reason::InvalidPolicy(_) => "invalid-policy",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::HostNetwork => f.write_str("the pod is on the network of its host"),
            Reason::IgnoredNamespace => f.write_str("pods of this namespace are never injected"),
            Reason::Label => write!(f, "the pod's label {INJECT} says so"),
            Reason::Annotation => write!(f, "the pod's annotation {INJECT} says so"),
            Reason::NeverSelector => f.write_str("neverInjectSelector matches"),
            Reason::AlwaysSelector => f.write_str("alwaysInjectSelector matches"),
            Reason::Policy => f.write_str("neither the pod nor a selector says anything, and so the policy holds"),
            Reason::InvalidPolicy(policy) => {
                write!(f, "the policy {policy:?} of the injector's ConfigMap is neither enabled nor disabled")
            }
        }
    }
}

/// Whether the pod is injected, and what decided.
pub(crate) fn decide(pod: &Pod, config: &InjectorConfig) -> (bool, Reason) {
    if pod.spec()["hostNetwork"] == true {
        return (false, Reason::HostNetwork);
    }
    if IGNORED_NAMESPACES.contains(&pod.meta("namespace")) {
        return (false, Reason::IgnoredNamespace);
    }
    let chosen = chosen(pod, config);
    match (&config.policy, chosen) {
        // Even a pod that asks is not injected under an invalid policy.
        (Policy::Invalid(policy), _) => (false, Reason::InvalidPolicy(policy.clone())),
        (_, Some(chosen)) => chosen,
        (policy, None) => (*policy == Policy::Enabled, Reason::Policy),
    }
}

/// A value of the label other than `true` and `false` that was passed over.
pub(crate) fn invalid_value(pod: &Pod) -> Option<&str> {
    asked(pod).map(|(value, _)| value).filter(|value| !matches!(*value, "" | "true" | "false"))
}

fn asked(pod: &Pod) -> Option<(&str, Reason)> {
    let label = pod.label(INJECT).map(|value| (value, Reason::Label));
    label.or_else(|| Some((pod.annotation(INJECT)?, Reason::Annotation)))
}

/// `None`: neither the pod nor a selector says anything.
fn chosen(pod: &Pod, config: &InjectorConfig) -> Option<(bool, Reason)> {
    match asked(pod) {
        Some(("true", by)) => return Some((true, by)),
        Some(("false", by)) => return Some((false, by)),
        _ => {}
    }
    let labels: Labels = pod.labels().collect();
    let any = |selectors: &[LabelSelector]| selectors.iter().any(|selector| selects(selector, &labels));
    if any(&config.never) {
        Some((false, Reason::NeverSelector))
    } else if any(&config.always) {
        Some((true, Reason::AlwaysSelector))
    } else {
        None
    }
}

/// Here an empty selector selects nothing.
fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let empty = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
    !empty && selector.matches(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn check(config: &str, pod: Json, expected: &(bool, Reason)) {
        let pod = Pod::typed(pod).unwrap();
        assert_eq!(decide(&pod, &InjectorConfig::parse(config).unwrap()), *expected, "{config}");
    }

    fn labelled(name: &str, value: &str) -> Json {
        json!({ "metadata": { "labels": { name: value } }, "spec": { "containers": [] } })
    }

    #[test]
    fn an_invalid_policy_injects_nothing_even_when_asked() {
        let reason = Reason::InvalidPolicy("off".into());
        check("policy: 'off'", labelled(INJECT, "true"), &(false, reason));
    }

    #[test]
    fn an_empty_selector_and_an_invalid_one_match_nothing() {
        let config = "{policy: disabled, alwaysInjectSelector: [{}, {matchExpressions: [{key: a, operator: Is}]}]}";
        check(config, labelled("a", "b"), &(false, Reason::Policy));
    }

    #[test]
    fn the_label_of_a_pod_goes_before_its_annotation() {
        let mut pod = json!({ "metadata": { "annotations": { INJECT: "false" } }, "spec": { "containers": [] } });
        check("policy: enabled", pod.clone(), &(false, Reason::Annotation));
        pod["metadata"]["labels"] = json!({ INJECT: "true" });
        check("policy: disabled", pod, &(true, Reason::Label));
    }

    #[test]
    fn never_goes_before_always() {
        let config = "{policy: enabled, alwaysInjectSelector: [{matchLabels: {a: b}}], neverInjectSelector: [{matchLabels: {a: b}}]}";
        check(config, labelled("a", "b"), &(false, Reason::NeverSelector));
    }
}

//! ValidatingAdmissionPolicies: the checks of objects that an API server can evaluate by itself, without the webhook.

use std::collections::BTreeMap;

use config::kind::Kind;
use config::validate::{AdmissionRule, RULES};
use serde_json::{Value, json};
use sources::kube::plural;

const NOT_A_PROBE: &str =
    "!has(object.metadata.annotations) || !('internal.istio.io/webhook-always-reject' in object.metadata.annotations)";

/// A policy and its binding for each kind.
pub fn admission_policies() -> Vec<Value> {
    let mut kinds: BTreeMap<Kind, Vec<&AdmissionRule>> = BTreeMap::new();
    RULES.iter().for_each(|rule| kinds.entry(rule.kind).or_default().push(rule));
    kinds.iter().flat_map(|(kind, rules)| [policy(*kind, rules), binding(*kind)]).collect()
}

fn name(kind: Kind) -> String {
    format!("{}.meltemi.{}", plural(kind), kind.group())
}

fn policy(kind: Kind, rules: &[&AdmissionRule]) -> Value {
    let validations = rules.iter().map(|rule| json!({ "expression": expression(rule), "message": rule.message }));
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name(kind) },
        "spec": {
            // An expression that fails to evaluate does not mean that the object is invalid; the webhook decides.
            "failurePolicy": "Ignore",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [kind.group()], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [plural(kind)],
            }] },
            // istiod asks with such an object whether its own webhook rejects, and waits for the webhook's words.
            "matchConditions": [{ "name": "not-a-probe-of-the-webhook", "expression": NOT_A_PROBE }],
            "validations": validations.collect::<Vec<_>>(),
        },
    })
}

fn expression(rule: &AdmissionRule) -> String {
    format!("!has(object.spec) || ({})", rule.expression.replace("spec.", "object.spec."))
}

fn binding(kind: Kind) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name(kind) },
        "spec": { "policyName": name(kind), "validationActions": ["Deny"] },
    })
}

//! `meltemi admission-policy`: the checks that an API server can make by itself, as objects for `kubectl apply`.

use std::collections::BTreeMap;

use config::kind::Kind;
use config::validate::{AdmissionRule, RULES};
use serde_json::{Value, json};
use sources::kube::plural;

use super::{Outcome, print};

pub(crate) fn run() -> Outcome {
    print(&text());
    Outcome::Done
}

fn text() -> String {
    let note = "# Made by `meltemi admission-policy`.\n";
    note.to_owned() + &objects().iter().map(crate::yaml::document).collect::<Vec<_>>().join("---\n")
}

/// A policy for each kind, and what puts it in force.
fn objects() -> Vec<Value> {
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
            // An expression that fails says nothing of the object; the webhook may.
            "failurePolicy": "Ignore",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [kind.group()], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [plural(kind)],
            }] },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_what_the_command_prints() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/meltemi/files/admission.yaml");
        let held = std::fs::read_to_string(file).unwrap_or_default();
        assert!(held == text(), "run `meltemi admission-policy > deploy/helm/meltemi/files/admission.yaml`");
    }
}

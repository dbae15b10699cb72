//! Annotations with a meaning to istiod, on objects of any kind.

use super::field_context::FieldContext;
use crate::kinds::authorization_policy::Action;
use crate::object::AnyObject;

/// Set by istiod itself on generated objects; they would grant rights that the author may not have.
const INTERNAL: [&str; 2] = ["internal.istio.io/parents", "internal.istio.io/parent-namespace"];

/// For tests of a webhook.
const REJECT: &str = "internal.istio.io/webhook-always-reject";

pub(super) fn check(at: &FieldContext<'_>, object: &AnyObject) {
    let annotations = &object.meta().annotations;
    let at = at.field("annotations");
    if let Some(value) = annotations.get("istio.io/dry-run") {
        at.reject("istio.io/dry-run", dry_run_fault(object, value));
    }
    at.reject_if(REJECT, annotations.get(REJECT).is_some(), "the object asks to be rejected; remove the annotation");
    for name in INTERNAL {
        at.reject_if(name, annotations.get(name).is_some(), "only a control plane sets this; remove the annotation");
    }
}

fn dry_run_fault(object: &AnyObject, value: &str) -> Option<String> {
    let AnyObject::AuthorizationPolicy(policy) = object else {
        return Some("only AuthorizationPolicies can be tried out; remove the annotation".to_owned());
    };
    if !matches!(policy.spec.action, Action::Allow | Action::Deny) {
        return Some("only the actions ALLOW and DENY can be tried out; remove the annotation".to_owned());
    }
    let boolean = ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"].contains(&value);
    (!boolean).then(|| format!("{value:?} is neither true nor false"))
}

//! The target of a policy: a selector, or the objects that it is attached to.

use super::field_context::FieldContext;
use super::label::check_match_labels;
use crate::kinds::target_ref::TargetRef;
use crate::labels::Selector;

pub(super) fn check_target(
    at: &FieldContext<'_>,
    selector: Option<&Selector>,
    one: Option<&TargetRef>,
    several: &[TargetRef],
) {
    let ways = [selector.is_some(), one.is_some(), !several.is_empty()];
    if ways.into_iter().filter(|given| *given).count() > 1 {
        at.error("a policy is for what it selects or for what it is attached to; keep one of selector, targetRef and targetRefs");
    }
    check_selector(at, selector);
    at.if_set("targetRef", one, check_ref);
    at.each("targetRefs", several, check_ref);
}

pub(super) fn check_selector(at: &FieldContext<'_>, selector: Option<&Selector>) {
    at.if_set("selector", selector, check_match_labels);
}

fn check_ref(at: &FieldContext<'_>, target: &TargetRef) {
    at.reject_if("name", target.name.is_empty(), "it is missing; name the object");
    at.reject_if("namespace", !target.namespace.is_empty(), "policies stay in their namespace; remove it");
    let known = matches!(
        (target.group.as_str(), target.kind.as_str()),
        ("" | "core", "Service")
            | ("networking.istio.io", "ServiceEntry")
            | ("gateway.networking.k8s.io", "Gateway" | "GatewayClass")
    );
    if !known {
        let (group, kind) = (&target.group, &target.kind);
        at.error(format!(
            "a policy cannot be attached to a {kind} of group {group:?}; use Service, ServiceEntry (networking.istio.io), Gateway or GatewayClass (gateway.networking.k8s.io)"
        ));
    }
}

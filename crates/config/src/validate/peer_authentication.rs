//! PeerAuthentication: selector and ports.

use super::field_context::FieldContext;
use super::network::port_fault;
use super::target::check_selector;
use crate::kinds::peer_authentication::PeerAuthentication;

pub(super) fn check(at: &FieldContext<'_>, policy: &PeerAuthentication) {
    let selects = policy.selector.as_ref().is_some_and(|selector| !selector.match_labels.is_empty());
    let ports = at.field("portLevelMtls");
    if !selects && !policy.port_level_mtls.is_empty() {
        ports.error("ports belong to workloads; select some with selector, or remove it");
    }
    if ports.is_written() && policy.port_level_mtls.is_empty() {
        ports.error("there is nothing in it; name a port, or remove it");
    }
    for &port in policy.port_level_mtls.keys() {
        ports.reject(&port.to_string(), port_fault(port));
    }
    check_selector(at, policy.selector.as_ref());
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn ports_and_selectors() {
        let table = Table {
            kind: "PeerAuthentication",
            valid: "{selector: {matchLabels: {app: a}}, portLevelMtls: {80: {mode: STRICT}}}",
        };
        check(
            &table,
            "{portLevelMtls: {0: {mode: STRICT}}}",
            &[
                "error spec.portLevelMtls: ports belong to workloads; select some with selector, or remove it",
                "error spec.portLevelMtls.0: 0 is not a port; use 1 to 65535",
            ],
        );
        check(
            &table,
            "{portLevelMtls: {}}",
            &["error spec.portLevelMtls: there is nothing in it; name a port, or remove it"],
        );
        check(
            &table,
            "{selector: {}}",
            &[
                "warning spec.selector.matchLabels: no labels are given, so that all workloads of the namespace are selected; name labels, or remove the selector",
            ],
        );
    }
}

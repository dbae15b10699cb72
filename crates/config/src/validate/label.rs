//! Labels, selectors, exportTo and names as istiod accepts them.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use crate::kinds::workload_selector::WorkloadSelector;
use crate::labels::{Labels, Selector};
use crate::mesh::dns_name::is_label;

const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

/// Kubernetes labels: `[prefix/]name: value`.
pub(super) fn check_labels(at: &FieldContext<'_>, labels: &Labels) {
    for (key, value) in labels.iter() {
        if !is_label_key(key) {
            at.field(key)
                .error(format!("{key:?} cannot be the key of a label; write name or prefix.example/name, {RULE}"));
        }
        if !value.is_empty() && !is_qualified(value) {
            at.field(key).error(format!("{value:?} cannot be the value of a label; use one {RULE}"));
        }
    }
}

const RULE: &str = "of letters, digits, -, _ and ., with a letter or digit at both ends";

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|prefix| prefix.len() <= LONGEST_PREFIX && prefix.split('.').all(is_host_part));
    prefix_fits && name.len() <= LONGEST_NAME && is_qualified(name)
}

fn is_qualified(text: &str) -> bool {
    ends_well(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A DNS label of any length.
fn is_host_part(text: &str) -> bool {
    ends_well(text) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn ends_well(text: &str) -> bool {
    let bytes = text.as_bytes();
    let good = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    good(bytes.first()) && good(bytes.last())
}

/// A name of one label: ports, subsets, namespaces.
pub(super) fn label_fault(name: &str) -> Option<String> {
    (!is_label(name)).then(|| format!("{name:?} cannot be a name here; use up to 63 letters, digits and inner hyphens"))
}

/// `matchLabels: ..` of policies.
pub(super) fn check_match_labels(at: &FieldContext<'_>, selector: &Selector) {
    check_selected(&at.field("matchLabels"), &selector.match_labels);
}

/// `workloadSelector: {labels: ..}`. Returns whether it can be used.
pub(super) fn check_workload_selector(at: &FieldContext<'_>, selector: Option<&WorkloadSelector>) -> bool {
    let Some(selector) = selector else { return true };
    check_selected(&at.field("workloadSelector").field("labels"), &selector.labels)
}

fn check_selected(at: &FieldContext<'_>, labels: &Labels) -> bool {
    let mut good = true;
    for (key, value) in labels.iter() {
        if key.is_empty() {
            at.error("a label needs a key; name the label, or remove it");
            good = false;
        }
        if key.contains('*') || value.contains('*') {
            at.field(key)
                .error(format!("{key}={value} has a *, but labels are compared as they are; write the label in full"));
            good = false;
        }
    }
    if labels.is_empty() {
        at.warn("no labels are given, so that all workloads of the namespace are selected; name labels, or remove the selector");
    }
    good
}

/// The kind of object with this `exportTo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exported {
    /// May also be exported to nobody.
    ServiceEntry,
    /// A DestinationRule with a workload selector, which must stay in its own namespace.
    SelectingRule,
    Other,
}

pub(super) fn check_export_to(at: &FieldContext<'_>, namespace: &str, export_to: &[String], whose: Exported) {
    let mut seen = BTreeSet::new();
    at.each("exportTo", export_to, |at, to| {
        let key = if to == "." { namespace } else { to };
        if seen.contains(key) {
            at.error(format!("{to:?} is listed twice (. is {namespace}); remove one"));
        } else if let Some(fault) = export_fault(key, whose) {
            at.error(fault);
        } else {
            seen.insert(key);
        }
    });
    let at = at.field("exportTo");
    if whose == Exported::SelectingRule && !seen.is_empty() && (seen.len() > 1 || !seen.contains(namespace)) {
        at.error("a rule with a workloadSelector holds in its own namespace only; write ., or remove exportTo");
    }
    if seen.contains("*") && export_to.len() > 1 {
        at.error("* is everybody already; remove it or the others");
    }
    if seen.contains("~") && export_to.len() > 1 {
        at.error("~ is nobody; remove it or the others");
    }
}

fn export_fault(to: &str, whose: Exported) -> Option<String> {
    match to {
        "." | "*" => None,
        "~" if whose == Exported::ServiceEntry => None,
        "~" => Some("~ (nobody) is for ServiceEntries only; use ., * or names of namespaces".to_owned()),
        namespace if is_label(namespace) => None,
        other => Some(format!("{other:?} is not a namespace; use ., * or names of namespaces")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels() {
        let long = "a".repeat(63);
        for good in ["app", "a.b_c-d", "example.com/app", long.as_str()] {
            assert!(is_label_key(good), "{good}");
        }
        for bad in ["", "-a", "a/", "/a", "a/b/c", "a_b/c", "a b", &"a".repeat(64), &format!("{}/a", "a".repeat(254))] {
            assert!(!is_label_key(bad), "{bad}");
        }
    }
}

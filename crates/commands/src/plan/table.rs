//! The text of a plan: objects, notes, then the groups of proxies with what changes for them.

use std::fmt::Write;

use admin::{
    ChangeKind, FieldChange, GroupReport, Note, PlanReport, PlannedObject, PlannedWorkload, RequestEffect,
    ResourceChange,
};
use serde_json::Value;

use super::super::counted;
use super::super::object_text::ObjectText;

/// Columns of a value that is not shown whole.
const VALUE: usize = 48;
/// Lines of a group without `--diff`.
const SHOWN: usize = 10;

pub(super) fn text(report: &PlanReport, objects: &ObjectText, whole: bool) -> String {
    let mut out = String::new();
    for object in &report.objects {
        line(&mut out, &format!("{}: {}", object_name(object), object.effect));
    }
    for note in &report.notes {
        line(&mut out, &note_text(note, objects));
    }
    let PlanReport { proxies, affected, namespaces, bytes, .. } = report;
    if *affected == 0 {
        line(&mut out, &format!("nothing changes for {}", unchanged(*proxies)));
        return out;
    }
    let sent = size(*bytes);
    let namespaces = counted(*namespaces, "namespace", "namespaces");
    line(&mut out, &format!("{affected} of {proxies} proxies in {namespaces} change; {sent} are sent"));
    report.groups.iter().for_each(|group| group_text(&mut out, group, whole));
    out
}

/// As provenance has it.
pub(super) fn object_name(object: &PlannedObject) -> String {
    let slash = if object.namespace.is_empty() { "" } else { "/" };
    format!("{} {}{slash}{}", object.kind, object.namespace, object.name)
}

fn unchanged(proxies: usize) -> String {
    match proxies {
        0 => "anybody: there are no proxies".to_owned(),
        1 => "the only proxy".to_owned(),
        _ => format!("any of {proxies} proxies"),
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a String grows as needed");
}

/// As `check` has it.
fn note_text(note: &Note, objects: &ObjectText) -> String {
    let mut text = format!("{}: ", note.severity);
    if let Some((file, line)) = note.line.and_then(|line| objects.place(line)) {
        text.push_str(&format!("{file}:{line}:{}: ", note.column.unwrap_or(1)));
    }
    if let (Some(kind), Some(namespace), Some(name)) = (&note.kind, &note.namespace, &note.name) {
        let slash = if namespace.is_empty() { "" } else { "/" };
        text.push_str(&format!("{kind} {namespace}{slash}{name}: "));
    }
    if let Some(field) = &note.field {
        text.push_str(&format!("{field}: "));
    }
    text + &note.what
}

fn group_text(out: &mut String, group: &GroupReport, whole: bool) {
    let shown = if whole { usize::MAX } else { SHOWN };
    line(out, "");
    let workloads: Vec<String> = group.workloads.iter().take(shown).map(workload_text).collect();
    let more = more(group.workloads.len(), shown, "workloads");
    line(
        out,
        &format!(
            "{}{}, {} each",
            workloads.join(", "),
            more.map(|it| format!(", {it}")).unwrap_or_default(),
            size(group.bytes)
        ),
    );
    for change in group.requests.iter().take(shown) {
        line(out, &format!("  {:<8} {}", effect(change.effect), change.what));
    }
    if let Some(more) = self::more(group.requests.len(), shown, "changes of requests") {
        line(out, &format!("  {more}"));
    }
    for resource in group.resources.iter().take(shown) {
        resource_text(out, resource, whole);
    }
    let hidden = group.resources.len().saturating_sub(shown) + group.more_resources;
    if hidden > 0 {
        line(out, &format!("  and {hidden} more resources{}", if whole { "" } else { "; --diff shows them" }));
    }
}

fn more(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("and {} more {what}", all - shown))
}

pub(super) fn workload_text(it: &PlannedWorkload) -> String {
    let PlannedWorkload { namespace, workload, kind, proxies, .. } = it;
    let noun = match (kind.as_str(), proxies) {
        ("router", 1) => "gateway",
        ("router", _) => "gateways",
        (_, 1) => "proxy",
        _ => "proxies",
    };
    format!("{proxies} {noun} of {workload} in {namespace}")
}

fn effect(effect: RequestEffect) -> &'static str {
    match effect {
        RequestEffect::Denied => "denied",
        RequestEffect::Allowed => "allowed",
        RequestEffect::RouteLost => "lost",
        RequestEffect::RouteShadowed => "shadowed",
        RequestEffect::RouteGained => "gained",
        RequestEffect::RouteChanged => "changed",
    }
}

pub(crate) fn resource_text(out: &mut String, resource: &ResourceChange, whole: bool) {
    let sign = match resource.change {
        ChangeKind::Added => '+',
        ChangeKind::Replaced => '~',
        ChangeKind::Removed => '-',
    };
    line(out, &format!("  {sign} {} {}", resource.kind, resource.name));
    let shown = if whole { usize::MAX } else { SHOWN };
    for field in resource.fields.iter().take(shown) {
        line(out, &format!("      {}", field_text(field, whole)));
    }
    let hidden = resource.fields.len().saturating_sub(shown) + resource.more_fields;
    if hidden > 0 {
        line(out, &format!("      and {hidden} more fields"));
    }
    if let (true, ChangeKind::Added, Some(message)) = (whole, resource.change, &resource.message) {
        crate::yaml::document(message).lines().for_each(|text| line(out, &format!("      {text}")));
    }
}

fn field_text(FieldChange { path, old, new }: &FieldChange, whole: bool) -> String {
    let value = |value: &Value| shortened(&value.to_string(), whole);
    match (old, new) {
        (Some(old), Some(new)) => format!("{path}: {} -> {}", value(old), value(new)),
        (None, Some(new)) => format!("{path}: added {}", value(new)),
        (Some(old), None) => format!("{path}: removed {}", value(old)),
        (None, None) => path.clone(),
    }
}

fn shortened(text: &str, whole: bool) -> String {
    if whole || text.chars().count() <= VALUE {
        return text.to_owned();
    }
    format!("{}..", text.chars().take(VALUE).collect::<String>())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> PlanReport {
        let resource = json!({
            "type": "rds", "name": "80", "change": "replaced", "bytes": 1200, "moreFields": 2, "objects": ["VirtualService shop/cart"],
            "fields": [{"path": "virtualHosts[cart:80].routes[0].route.timeout", "old": "5s", "new": "10s"}],
        });
        let group = json!({
            "proxies": 12, "bytes": 1200, "resources": [resource], "moreResources": 3,
            "workloads": [{"namespace": "shop", "workload": "web", "kind": "sidecar", "proxies": 11, "names": ["web-1.shop"]},
                {"namespace": "edge", "workload": "ingress", "kind": "router", "proxies": 1, "names": []}],
            "requests": [{"effect": "routeShadowed", "what": "cart:80: /a* is never reached: /* is before it"}],
        });
        let note = json!({"severity": "warning", "what": "odd", "kind": "VirtualService", "namespace": "shop", "name": "cart",
            "field": "spec.x", "line": 3, "column": 7});
        serde_json::from_value(json!({
            "proxies": 40, "affected": 12, "namespaces": 2, "bytes": 14_400, "notes": [note], "groups": [group],
            "objects": [{"kind": "VirtualService", "namespace": "shop", "name": "cart", "effect": "replaced"}],
        }))
        .unwrap()
    }

    #[test]
    fn groups_follow_objects_and_notes() {
        let expected = "\
VirtualService shop/cart: replaced
warning: VirtualService shop/cart: spec.x: odd
12 of 40 proxies in 2 namespaces change; 14.4 KB are sent

11 proxies of web in shop, 1 gateway of ingress in edge, 1.2 KB each
  shadowed cart:80: /a* is never reached: /* is before it
  ~ rds 80
      virtualHosts[cart:80].routes[0].route.timeout: \"5s\" -> \"10s\"
      and 2 more fields
  and 3 more resources; --diff shows them
";
        assert_eq!(text(&report(), &ObjectText::default(), false), expected);
    }

    #[test]
    fn without_changes_one_line_says_so() {
        let report = PlanReport { affected: 0, groups: Vec::new(), objects: Vec::new(), notes: Vec::new(), ..report() };
        assert_eq!(text(&report, &ObjectText::default(), false), "nothing changes for any of 40 proxies\n");
    }

    #[test]
    fn long_values_are_cut_unless_all_is_asked_for() {
        let field = FieldChange { path: "a".into(), old: None, new: Some(json!("x".repeat(100))) };
        assert!(field_text(&field, false).ends_with("xx..") && field_text(&field, true).len() > 100);
    }
}

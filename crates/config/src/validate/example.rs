//! Parses the examples in tests of this folder: an object, and its diagnostics.

use crate::diagnostic::Diagnostic;
use crate::object::parse_documents;

pub(super) struct Table {
    pub(super) kind: &'static str,
    /// A valid spec of that kind, in every table, as a control.
    pub(super) valid: &'static str,
}

/// `severity field: what` of each diagnostic on an object of that kind and spec.
pub(super) fn check(table: &Table, spec: &str, expected: &[&str]) {
    assert_eq!(diagnostics(table.kind, table.valid), [""; 0], "{}", table.valid);
    assert_eq!(diagnostics(table.kind, spec), expected, "{spec}");
}

fn diagnostics(kind: &str, spec: &str) -> Vec<String> {
    let group = match kind {
        "PeerAuthentication" | "RequestAuthentication" | "AuthorizationPolicy" => "security.istio.io/v1",
        "Telemetry" => "telemetry.istio.io/v1",
        "WasmPlugin" | "TrafficExtension" => "extensions.istio.io/v1alpha1",
        "ProxyConfig" => "networking.istio.io/v1beta1",
        _ => "networking.istio.io/v1",
    };
    let spec = spec.replace('\n', "\n  ");
    let parsed =
        parse_documents("f", &format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: a}}\nspec:\n  {spec}\n"));
    let left_out = parsed.diagnostics.iter().any(|diagnostic| diagnostic.what.ends_with("; the object is left out"));
    assert_eq!((parsed.objects.len(), parsed.rejected.len()), if left_out { (0, 1) } else { (1, 0) }, "{spec}");
    let line = |diagnostic: &Diagnostic| format!("{} {}: {}", diagnostic.severity, diagnostic.field, diagnostic.what);
    // `unfit` is an error that rejects the object.
    parsed.diagnostics.iter().map(|diagnostic| unfit(&line(diagnostic)).unwrap_or_else(|| line(diagnostic))).collect()
}

fn unfit(line: &str) -> Option<String> {
    Some(format!("unfit {}", line.strip_prefix("error ")?.strip_suffix("; the object is left out")?))
}

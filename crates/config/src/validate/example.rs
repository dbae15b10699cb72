//! Reads the examples of the tests of this folder: an object, and the lines of its notes.

use crate::note::Note;
use crate::object::parse_documents;

pub(super) struct Table {
    pub(super) kind: &'static str,
    /// A spec of that kind with nothing wrong, in every table: else all of it could be noise.
    pub(super) valid: &'static str,
}

/// `severity field: what` of each note on an object of that kind and spec.
pub(super) fn check(table: &Table, spec: &str, expected: &[&str]) {
    assert_eq!(notes(table.kind, table.valid), [""; 0], "{}", table.valid);
    assert_eq!(notes(table.kind, spec), expected, "{spec}");
}

fn notes(kind: &str, spec: &str) -> Vec<String> {
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
    let left_out = parsed.notes.iter().any(|note| note.what.ends_with("; the object is left out"));
    assert_eq!((parsed.objects.len(), parsed.refused.len()), if left_out { (0, 1) } else { (1, 0) }, "{spec}");
    let line = |note: &Note| format!("{} {}: {}", note.severity, note.field, note.what);
    // `unfit` is an error that costs the object.
    parsed.notes.iter().map(|note| unfit(&line(note)).unwrap_or_else(|| line(note))).collect()
}

fn unfit(line: &str) -> Option<String> {
    Some(format!("unfit {}", line.strip_prefix("error ")?.strip_suffix("; the object is left out")?))
}

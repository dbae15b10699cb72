//! Namespaces that AuthorizationPolicies name as sources and that do not exist.

use config::kind::Kind;

use super::{Diagnostics, suggestion};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, diagnostics: &mut Diagnostics) {
    let known: Vec<&str> = mesh.all_objects.namespaces.keys().map(|name| &*name.name).collect();
    // A folder without Namespaces does not show which ones exist.
    if known.is_empty() {
        return;
    }
    for policy in mesh.objects.authorization_policies.values() {
        for (index, rule) in policy.spec.rules.iter().enumerate() {
            for (at, from) in rule.from.iter().enumerate() {
                let Some(source) = &from.source else { continue };
                let lists = [("namespaces", &source.namespaces), ("notNamespaces", &source.not_namespaces)];
                let names =
                    lists.into_iter().flat_map(|(field, list)| list.iter().enumerate().map(move |it| (field, it)));
                for (field, (item, name)) in names.filter(|(_, (_, name))| !exists(name, &known)) {
                    let field = format!("spec.rules[{index}].from[{at}].source.{field}[{item}]");
                    let hint = suggestion::of_names(name, known.iter().copied());
                    let what = format!("there is no Namespace {name}{hint}");
                    diagnostics.warn(Kind::AuthorizationPolicy, &policy.meta, field, what);
                }
            }
        }
    }
}

/// `a`, `a*`, `*a` or `*`.
fn exists(pattern: &str, known: &[&str]) -> bool {
    let matches = |name: &&str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => *name == pattern,
    };
    known.iter().any(matches)
}

//! Objects of the Gateway API, which istiod reads and we do not: named together, in one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diagnostic::Diagnostic;
use crate::tree::Node;

/// Names (`namespace/name`) by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadObjects(BTreeMap<String, BTreeSet<String>>);

const INTRODUCTION: &str = "the Gateway API is not supported; left out: ";

impl UnreadObjects {
    pub(super) fn add(&mut self, kind: &str, object: &Node) {
        let metadata = |field| object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Node::text);
        let (namespace, name) = (metadata("namespace").unwrap_or("default"), metadata("name").unwrap_or("(no name)"));
        self.insert(kind, format!("{namespace}/{name}"));
    }

    pub fn insert(&mut self, kind: &str, name: String) {
        self.0.entry(kind.to_owned()).or_default().insert(name);
    }

    pub fn extend(&mut self, others: &UnreadObjects) {
        for (kind, names) in &others.0 {
            names.iter().for_each(|name| self.insert(kind, name.clone()));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the diagnostics on such objects, of which each text has one, out of a list.
    pub fn extract(diagnostics: &mut Vec<Diagnostic>) -> UnreadObjects {
        let mut all = UnreadObjects::default();
        diagnostics.retain(|diagnostic| match diagnostic.what.strip_prefix(INTRODUCTION) {
            Some(list) => {
                for (kind, names) in list.split("; ").filter_map(|part| part.split_once(' ')) {
                    names.split(", ").for_each(|name| all.insert(kind, name.to_owned()));
                }
                false
            }
            None => true,
        });
        all
    }

    /// `2 HTTPRoute, 1 Gateway`
    pub fn counts(&self) -> String {
        let kinds = self.0.iter().map(|(kind, names)| format!("{} {kind}", names.len()));
        kinds.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for UnreadObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(INTRODUCTION)?;
        for (index, (kind, names)) in self.0.iter().enumerate() {
            let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            write!(f, "{}{kind} {names}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::parse_documents;

    fn text(kind: &str, names: &[&str]) -> String {
        let object = |name: &&str| {
            format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: {name}, namespace: shop}}}}\n---\n"
            )
        };
        names.iter().map(object).collect()
    }

    #[test]
    fn all_objects_of_all_texts_are_named_in_one_line() {
        let first = parse_documents("a.yaml", &(text("HTTPRoute", &["b", "a"]) + &text("Gateway", &["web"])));
        let lines: Vec<String> = first.diagnostics.iter().map(ToString::to_string).collect();
        let expected = "warning: a.yaml:1:50: the Gateway API is not supported; left out: Gateway shop/web; HTTPRoute shop/a, shop/b";
        assert_eq!(lines, [expected]);
        let second = parse_documents("b.yaml", &text("HTTPRoute", &["c"]));
        let mut diagnostics = [first.diagnostics, second.diagnostics, vec![Diagnostic::warning("other")]].concat();
        let all = UnreadObjects::extract(&mut diagnostics);
        assert_eq!(diagnostics, [Diagnostic::warning("other")]);
        assert_eq!(all.counts(), "1 Gateway, 3 HTTPRoute");
        assert!(all.to_string().ends_with("left out: Gateway shop/web; HTTPRoute shop/a, shop/b, shop/c"), "{all}");
        assert!(UnreadObjects::extract(&mut diagnostics).is_empty());
    }
}

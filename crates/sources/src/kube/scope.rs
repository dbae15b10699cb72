//! The namespaces whose objects are kept. Visibility for proxies is decided later, in `model`.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::store::Snapshot;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NamespaceScope {
    #[default]
    All,
    Only(Arc<BTreeSet<Arc<str>>>),
}

impl NamespaceScope {
    /// The namespaces that the mesh config's `discoverySelectors` select, and the root namespace, which holds the mesh config.
    pub fn new(snapshot: &Snapshot) -> NamespaceScope {
        let selectors = &snapshot.mesh.discovery_selectors;
        if selectors.is_empty() {
            return NamespaceScope::All;
        }
        let chosen = |object: &&Arc<_>| {
            let object: &config::meta::Object<_> = object;
            selectors.iter().any(|selector| selector.matches(&object.meta.labels))
        };
        let chosen = snapshot.namespaces.values().filter(chosen).map(|object| object.meta.name.clone());
        let root = Arc::from(snapshot.mesh.root_namespace.as_str());
        NamespaceScope::Only(Arc::new(chosen.chain([root]).collect()))
    }

    pub fn holds(&self, namespace: &str) -> bool {
        match self {
            NamespaceScope::All => true,
            NamespaceScope::Only(names) => namespace.is_empty() || names.contains(namespace),
        }
    }

    /// Namespaces that are new in this one. `None`: all of them.
    pub(super) fn gained_since(&self, before: &NamespaceScope) -> Option<Vec<Arc<str>>> {
        match (before, self) {
            (NamespaceScope::All, _) => Some(Vec::new()),
            (NamespaceScope::Only(_), NamespaceScope::All) => None,
            (NamespaceScope::Only(before), NamespaceScope::Only(now)) => {
                Some(now.difference(before).cloned().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    fn scope(mesh: &str) -> NamespaceScope {
        let text = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: a, labels: {{mesh: in}}}}}}\n---\n\
             {{apiVersion: v1, kind: Namespace, metadata: {{name: b}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, metadata: {{name: istio, namespace: istio-system}}, data: {{mesh: '{mesh}'}}}}"
        );
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let updates = parse_documents("f", &text).objects.into_iter().map(Update::Put).collect();
        NamespaceScope::new(&store.apply(updates))
    }

    #[test]
    fn without_selectors_all_namespaces_are_in_scope() {
        assert_eq!(scope("{}"), NamespaceScope::All);
    }

    #[test]
    fn selected_namespaces_and_the_root_are_in_scope() {
        let scope = scope("{discoverySelectors: [{matchLabels: {mesh: in}}]}");
        let found: Vec<bool> = ["a", "b", "istio-system", "", "later"].iter().map(|name| scope.holds(name)).collect();
        assert_eq!(found, [true, false, true, true, false]);
    }

    #[test]
    fn what_was_gained() {
        let only = |names: &[&str]| NamespaceScope::Only(Arc::new(names.iter().map(|name| Arc::from(*name)).collect()));
        assert_eq!(only(&["a", "b"]).gained_since(&only(&["b", "c"])), Some(vec!["a".into()]));
        assert_eq!(NamespaceScope::All.gained_since(&only(&["b"])), None);
        assert_eq!(only(&["b"]).gained_since(&NamespaceScope::All), Some(Vec::new()));
    }
}

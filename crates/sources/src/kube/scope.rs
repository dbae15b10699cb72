//! Which namespaces matter: objects of the others are not held. What proxies may see is decided later, by the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::store::Snapshot;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    All,
    Only(Arc<BTreeSet<Arc<str>>>),
}

impl Scope {
    /// What `discoverySelectors` of the mesh config choose, and the root namespace, where the mesh config is.
    pub fn new(snapshot: &Snapshot) -> Scope {
        let selectors = &snapshot.mesh.discovery_selectors;
        if selectors.is_empty() {
            return Scope::All;
        }
        let chosen = |object: &&Arc<_>| {
            let object: &config::meta::Object<_> = object;
            selectors.iter().any(|selector| selector.matches(&object.meta.labels))
        };
        let chosen = snapshot.namespaces.values().filter(chosen).map(|object| object.meta.name.clone());
        let root = Arc::from(snapshot.mesh.root_namespace.as_str());
        Scope::Only(Arc::new(chosen.chain([root]).collect()))
    }

    pub fn holds(&self, namespace: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Only(names) => namespace.is_empty() || names.contains(namespace),
        }
    }

    /// Namespaces that are new in this one. `None`: too many to name, all of them.
    pub(super) fn gained_since(&self, before: &Scope) -> Option<Vec<Arc<str>>> {
        match (before, self) {
            (Scope::All, _) => Some(Vec::new()),
            (Scope::Only(_), Scope::All) => None,
            (Scope::Only(before), Scope::Only(now)) => Some(now.difference(before).cloned().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    fn scope(mesh: &str) -> Scope {
        let text = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: a, labels: {{mesh: in}}}}}}\n---\n\
             {{apiVersion: v1, kind: Namespace, metadata: {{name: b}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, metadata: {{name: istio, namespace: istio-system}}, data: {{mesh: '{mesh}'}}}}"
        );
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let updates = parse_documents("f", &text).objects.into_iter().map(Update::Put).collect();
        Scope::new(&store.apply(updates))
    }

    #[test]
    fn without_selectors_everything_matters() {
        assert_eq!(scope("{}"), Scope::All);
    }

    #[test]
    fn selected_namespaces_and_the_root_matter() {
        let scope = scope("{discoverySelectors: [{matchLabels: {mesh: in}}]}");
        let held: Vec<bool> = ["a", "b", "istio-system", "", "later"].iter().map(|name| scope.holds(name)).collect();
        assert_eq!(held, [true, false, true, true, false]);
    }

    #[test]
    fn what_was_gained() {
        let only = |names: &[&str]| Scope::Only(Arc::new(names.iter().map(|name| Arc::from(*name)).collect()));
        assert_eq!(only(&["a", "b"]).gained_since(&only(&["b", "c"])), Some(vec!["a".into()]));
        assert_eq!(Scope::All.gained_since(&only(&["b"])), None);
        assert_eq!(only(&["b"]).gained_since(&Scope::All), Some(Vec::new()));
    }
}

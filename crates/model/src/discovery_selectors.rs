//! `discoverySelectors`: limits the objects to those of selected namespaces. Unselected ones are left out, even the root namespace.

use config::labels::Labels;
use config::store::{Name, Snapshot};

use crate::delta::changed;
use crate::mesh::Mesh;

/// `mesh`: the one made from the previous snapshot.
pub(crate) fn discovered_objects(snapshot: &Snapshot, mesh: Option<&Mesh>) -> Snapshot {
    if snapshot.mesh.discovery_selectors.is_empty() {
        return snapshot.clone();
    }
    let keep = |name: &Name| name.namespace.is_empty() || is_discovered(snapshot, name);
    match mesh.filter(|mesh| has_same_selectors(&mesh.all_objects, snapshot)) {
        Some(mesh) => snapshot.part(&mesh.all_objects, &mesh.objects, keep),
        None => snapshot.part(&Snapshot::empty(), &Snapshot::empty(), keep),
    }
}

fn is_discovered(snapshot: &Snapshot, name: &Name) -> bool {
    let namespace = Name { namespace: "".into(), name: name.namespace.clone() };
    let none = Labels::default();
    let labels = snapshot.namespaces.get(&namespace).map_or(&none, |object| &object.meta.labels);
    snapshot.mesh.discovery_selectors.iter().any(|selector| selector.matches(labels))
}

fn has_same_selectors(old: &Snapshot, new: &Snapshot) -> bool {
    old.mesh.discovery_selectors == new.mesh.discovery_selectors && !changed(&old.namespaces, &new.namespaces)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};

    use super::*;
    use crate::environment::Environment;

    fn updates(text: &str) -> Vec<Update> {
        parse_documents("f.yaml", text).objects.into_iter().map(Update::Put).collect()
    }

    fn service(namespace: &str, name: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{ports: [{{port: 80}}]}}}}"
        )
    }

    fn check(mesh: &Mesh, want: &str) {
        let found: Vec<_> =
            mesh.objects.services.keys().map(|name| format!("{}/{}", name.namespace, name.name)).collect();
        assert_eq!(found.join(" "), want);
    }

    #[test]
    fn only_selected_namespaces_are_discovered_also_after_changes() {
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mesh = "{apiVersion: v1, kind: ConfigMap, metadata: {name: istio, namespace: istio-system}, \
                    data: {mesh: 'discoverySelectors: [{matchLabels: {mesh: in}}]'}}";
        let space = |name: &str, label: &str| {
            format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{mesh: {label}}}}}}}")
        };
        let first = [mesh.to_owned(), space("a", "in"), space("b", "out"), service("a", "one"), service("b", "two")];
        store.apply(updates(&first.join("\n---\n")));
        let mesh = Mesh::new(&store.snapshot(), &Arc::new(Environment::default()));
        check(&mesh, "a/one");
        store.apply(updates(&[service("a", "three"), service("b", "four")].join("\n---\n")));
        let (mesh, _) = mesh.next(&store.snapshot());
        check(&mesh, "a/one a/three");
        store.apply(updates(&space("b", "in")));
        let (mesh, _) = mesh.next(&store.snapshot());
        check(&mesh, "a/one a/three b/four b/two");
    }
}

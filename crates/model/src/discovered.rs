//! `discoverySelectors`: the part of all objects that there is for proxies. Namespaces that no selector chooses are not, the root namespace included.

use config::labels::Labels;
use config::store::{Name, Snapshot};

use crate::delta::changed;
use crate::mesh::Mesh;

/// `mesh`: what was made of the objects before.
pub(crate) fn part(snapshot: &Snapshot, mesh: Option<&Mesh>) -> Snapshot {
    if snapshot.mesh.discovery_selectors.is_empty() {
        return snapshot.clone();
    }
    let keep = |name: &Name| name.namespace.is_empty() || is_discovered(snapshot, name);
    match mesh.filter(|mesh| chooses_alike(&mesh.whole, snapshot)) {
        Some(mesh) => snapshot.part(&mesh.whole, &mesh.objects, keep),
        None => snapshot.part(&Snapshot::empty(), &Snapshot::empty(), keep),
    }
}

fn is_discovered(snapshot: &Snapshot, name: &Name) -> bool {
    let namespace = Name { namespace: "".into(), name: name.namespace.clone() };
    let none = Labels::default();
    let labels = snapshot.namespaces.get(&namespace).map_or(&none, |object| &object.meta.labels);
    snapshot.mesh.discovery_selectors.iter().any(|selector| selector.matches(labels))
}

fn chooses_alike(old: &Snapshot, new: &Snapshot) -> bool {
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
        let held: Vec<_> =
            mesh.objects.services.keys().map(|name| format!("{}/{}", name.namespace, name.name)).collect();
        assert_eq!(held.join(" "), want);
    }

    #[test]
    fn only_chosen_namespaces_are_there_also_after_changes() {
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

//! The mesh config of a revision: its ConfigMap `istio-REVISION` replaces `istio`, which belongs to another revision.

use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::meta::{Meta, Object};
use config::object::AnyObject;
use config::store::{Name, Update};

use crate::settings::{MESH_CONFIG_MAP, MeshSettings, mesh_config_map};

/// The ConfigMap that is read as the mesh config.
pub(crate) struct RevisionMeshConfig(pub(crate) Name);

impl RevisionMeshConfig {
    pub(crate) fn of(mesh: &MeshSettings) -> RevisionMeshConfig {
        let namespace = mesh.pod_namespace.as_str().into();
        RevisionMeshConfig(Name { namespace, name: mesh_config_map(&mesh.revision) })
    }

    pub(crate) fn apply(&self, updates: Vec<Update>) -> Vec<Update> {
        if &*self.0.name == MESH_CONFIG_MAP {
            return updates;
        }
        updates.into_iter().filter_map(|update| self.renamed(update)).collect()
    }

    fn renamed(&self, update: Update) -> Option<Update> {
        let id = match &update {
            Update::Put(object) => object.id(),
            Update::Delete(id) => id.clone(),
            _ => return Some(update),
        };
        if id.kind != Kind::ConfigMap || id.namespace != self.0.namespace {
            return Some(update);
        }
        match (&*id.name, update) {
            (MESH_CONFIG_MAP, _) => None,
            (name, update) if name != &*self.0.name => Some(update),
            (_, Update::Put(AnyObject::ConfigMap(map))) => {
                let meta = Meta { name: MESH_CONFIG_MAP.into(), ..map.meta.clone() };
                let object = Object { meta, spec: map.spec.clone() };
                Some(Update::Put(AnyObject::ConfigMap(Arc::new(object))))
            }
            _ => Some(Update::Delete(ObjectId { name: MESH_CONFIG_MAP.into(), ..id })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions};

    fn map(name: &str, domain: &str) -> Update {
        let text = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: istio-system}}, data: {{mesh: 'trustDomain: {domain}'}}}}"
        );
        Update::Put(parse_documents("f", &text).objects.remove(0))
    }

    #[test]
    fn a_revision_reads_its_own_mesh_config_and_no_other() {
        let own = RevisionMeshConfig(Name::new("istio-system", "istio-canary"));
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let mut domain = |updates: Vec<Update>| store.apply(own.apply(updates)).mesh.trust_domain.clone();
        assert_eq!(domain(vec![map("istio-canary", "new"), map("istio", "old")]), "new");
        assert_eq!(domain(vec![map("istio", "older")]), "new");
        let gone = |name: &str| {
            Update::Delete(ObjectId { kind: Kind::ConfigMap, namespace: "istio-system".into(), name: name.into() })
        };
        assert_eq!(domain(vec![gone("istio")]), "new");
        assert_eq!(domain(vec![gone("istio-canary")]), "cluster.local");
    }
}

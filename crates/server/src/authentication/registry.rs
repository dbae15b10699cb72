//! Facts about callers in the objects: our trust domains, and whether a workload still exists. Whether node metadata matches a workload is
//! decided where the node is read (`model/src/identity.rs`).

use std::sync::Arc;

use ca::{Identity, TrustDomains};
use config::store::{Name, Snapshot};

use crate::metrics::CurrentObjects;

#[derive(Clone)]
pub(crate) struct WorkloadRegistry {
    pub(crate) objects: Arc<CurrentObjects>,
}

impl WorkloadRegistry {
    /// The trust domains of the mesh config in use.
    pub(crate) fn domains(&self) -> TrustDomains {
        let mesh = self.objects.snapshot().map(|snapshot| snapshot.mesh.clone()).unwrap_or_default();
        TrustDomains { own: mesh.trust_domain.clone(), aliases: mesh.trust_domain_aliases.clone() }
    }

    /// Whether the workload of a certificate still exists. True where a namespace has no pods at all: it may not be watched.
    pub(crate) fn exists(&self, identity: &Identity) -> bool {
        let Some(objects) = self.objects.snapshot() else { return true };
        let from = Name::new(&identity.namespace, "");
        let own = |name: &Name| *name.namespace == *identity.namespace;
        let mut pods = objects.pods.range(from..).take_while(|(name, _)| own(name)).peekable();
        pods.peek().is_none()
            || pods.any(|(_, pod)| *pod.spec.service_account == *identity.service_account)
            || has_workload_entry(&objects, identity)
    }
}

/// Whether a WorkloadEntry has this service account.
fn has_workload_entry(objects: &Snapshot, identity: &Identity) -> bool {
    let own = |name: &Name| *name.namespace == *identity.namespace;
    let from = Name::new(&identity.namespace, "");
    let mut entries = objects.workload_entries.range(from..).take_while(|(name, _)| own(name));
    entries.any(|(_, entry)| entry.spec.service_account == identity.service_account)
}

#[cfg(test)]
impl WorkloadRegistry {
    /// Of the objects in a text.
    pub(crate) fn of(objects: &str) -> WorkloadRegistry {
        use config::store::{Store, StoreOptions, Update};
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let parsed = config::object::parse_documents("mesh.yaml", objects);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let objects = Arc::new(CurrentObjects::default());
        objects.set(store.snapshot());
        WorkloadRegistry { objects }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESH: &str = "
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop}
spec: {serviceAccountName: cart, containers: []}
status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: shop}
spec: {address: 10.1.0.1, serviceAccount: old}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: '{trustDomain: mesh.example, trustDomainAliases: [old.example]}'}
";

    fn of(account: &str) -> Identity {
        format!("spiffe://mesh.example/ns/shop/sa/{account}").parse().unwrap()
    }

    #[test]
    fn trust_domains_follow_the_mesh_config() {
        let registry = WorkloadRegistry::of(MESH);
        assert_eq!(registry.domains().own, "mesh.example");
        let changed = WorkloadRegistry::of(&MESH.replace("mesh.example", "new.example"));
        registry.objects.set(changed.objects.snapshot().unwrap());
        assert_eq!(
            (registry.domains().own, registry.domains().aliases),
            ("new.example".into(), vec!["old.example".into()])
        );
    }

    #[test]
    fn workloads_of_known_namespaces_must_exist() {
        let registry = WorkloadRegistry::of(MESH);
        assert!(registry.exists(&of("cart")) && registry.exists(&of("old")));
        assert!(!registry.exists(&of("gone")));
        let elsewhere: Identity = "spiffe://mesh.example/ns/bank/sa/any".parse().unwrap();
        assert!(registry.exists(&elsewhere), "a namespace without pods");
    }
}

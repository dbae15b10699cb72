//! What the objects say of whoever calls: which domains are ours, and whether a workload still exists. Whether a node is the workload
//! that it says is decided where the node is read (`model/src/identity.rs`).

use std::sync::Arc;

use ca::{Identity, TrustDomains};
use config::store::{Name, Snapshot};

use crate::ops::memory::Objects;

/// The objects of the moment.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(crate) objects: Arc<Objects>,
}

impl Registry {
    /// Those of the mesh config that is in use.
    pub(crate) fn domains(&self) -> TrustDomains {
        let mesh = self.objects.current().map(|snapshot| snapshot.mesh.clone()).unwrap_or_default();
        TrustDomains { own: mesh.trust_domain.clone(), aliases: mesh.trust_domain_aliases.clone() }
    }

    /// Whether the workload of a certificate still exists. Where a namespace has no pods at all, nobody can tell.
    pub(crate) fn exists(&self, identity: &Identity) -> bool {
        let Some(objects) = self.objects.current() else { return true };
        let from = Name::new(&identity.namespace, "");
        let own = |name: &Name| *name.namespace == *identity.namespace;
        let mut pods = objects.pods.range(from..).take_while(|(name, _)| own(name)).peekable();
        pods.peek().is_none()
            || pods.any(|(_, pod)| *pod.spec.service_account == *identity.service_account)
            || has_machine(&objects, identity)
    }
}

/// A machine was registered with this account.
fn has_machine(objects: &Snapshot, identity: &Identity) -> bool {
    let own = |name: &Name| *name.namespace == *identity.namespace;
    let from = Name::new(&identity.namespace, "");
    let mut entries = objects.workload_entries.range(from..).take_while(|(name, _)| own(name));
    entries.any(|(_, entry)| entry.spec.service_account == identity.service_account)
}

#[cfg(test)]
impl Registry {
    /// Of the objects in a text.
    pub(crate) fn of(objects: &str) -> Registry {
        use config::store::{Store, StoreOptions, Update};
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let parsed = config::object::parse_documents("mesh.yaml", objects);
        assert!(parsed.refused.is_empty(), "{:?}", parsed.notes);
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let objects = Arc::new(Objects::default());
        objects.set(store.snapshot());
        Registry { objects }
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
metadata: {name: machine, namespace: shop}
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
    fn trust_domains_are_those_of_the_mesh_config_of_the_moment() {
        let registry = Registry::of(MESH);
        assert_eq!(registry.domains().own, "mesh.example");
        let changed = Registry::of(&MESH.replace("mesh.example", "new.example"));
        registry.objects.set(changed.objects.current().unwrap());
        assert_eq!(
            (registry.domains().own, registry.domains().aliases),
            ("new.example".into(), vec!["old.example".into()])
        );
    }

    #[test]
    fn workloads_of_known_namespaces_must_exist() {
        let registry = Registry::of(MESH);
        assert!(registry.exists(&of("cart")) && registry.exists(&of("old")));
        assert!(!registry.exists(&of("gone")));
        let elsewhere: Identity = "spiffe://mesh.example/ns/bank/sa/any".parse().unwrap();
        assert!(registry.exists(&elsewhere), "nobody can tell");
    }
}

//! What the objects say of whoever calls: which domains are ours, whether a node is the workload that it says, whether a workload
//! still exists.

use std::net::IpAddr;
use std::sync::Arc;

use ca::{Identity, TrustDomains};
use config::store::{Name, Snapshot};
use wire::envoy::config::core::v3::Node;

use super::text;
use crate::ops::memory::Objects;

/// The objects of the moment.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(crate) objects: Arc<Objects>,
    /// The cluster whose tokens are believed.
    pub(crate) cluster: String,
}

/// What strict identity makes of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The workload is known, and is what the node says.
    Known,
    /// Nobody knows the workload: it is served as a sidecar without labels.
    Unknown,
}

impl Registry {
    /// Those of the mesh config that is in use.
    pub(crate) fn domains(&self) -> TrustDomains {
        let mesh = self.objects.current().map(|snapshot| snapshot.mesh.clone()).unwrap_or_default();
        TrustDomains { own: mesh.trust_domain.clone(), aliases: mesh.trust_domain_aliases.clone() }
    }

    /// Whether a node that speaks for this identity is the workload that it says. The error is for the proxy and the log.
    pub(super) fn claim(&self, node: &Node, identity: &Identity) -> Result<Claim, String> {
        let cluster = text(node, "CLUSTER_ID").unwrap_or_default();
        if !cluster.is_empty() && cluster != self.cluster {
            return Err(format!("the node is of cluster {cluster:?}, the caller of {:?}", self.cluster));
        }
        let parts: Vec<&str> = node.id.split('~').collect();
        let [kind, ip, id, _] = parts[..] else { return Ok(Claim::Unknown) };
        let ips = text(node, "INSTANCE_IPS").unwrap_or_else(|| ip.to_owned());
        let ips: Vec<IpAddr> = ips.split(',').filter_map(|ip| ip.trim().parse().ok()).collect();
        let Some(objects) = self.objects.current() else { return Ok(Claim::Unknown) };
        let pod = id.rsplit_once('.').and_then(|(name, namespace)| objects.pods.get(&Name::new(namespace, name)));
        match pod {
            Some(pod) if *pod.spec.service_account != *identity.service_account => {
                Err(format!("the pod {id} runs as {:?}, the caller is {identity}", pod.spec.service_account))
            }
            Some(pod) => match ips.iter().find(|ip| !pod.spec.ips.contains(ip)) {
                Some(foreign) => Err(format!("the address {foreign} is not of the pod {id}")),
                None => Ok(Claim::Known),
            },
            None if is_machine(&objects, identity, &ips) => Ok(Claim::Known),
            None if kind == "sidecar" => Ok(Claim::Unknown),
            None => Err(format!("a {kind} must be a known workload, and there is no pod {id}")),
        }
    }

    /// Whether the workload of a certificate still exists. Where a namespace has no pods at all, nobody can tell.
    pub(crate) fn exists(&self, identity: &Identity) -> bool {
        let Some(objects) = self.objects.current() else { return true };
        let from = Name::new(&identity.namespace, "");
        let own = |name: &Name| *name.namespace == *identity.namespace;
        let mut pods = objects.pods.range(from..).take_while(|(name, _)| own(name)).peekable();
        pods.peek().is_none()
            || pods.any(|(_, pod)| *pod.spec.service_account == *identity.service_account)
            || machines(&objects, identity).next().is_some()
    }
}

fn is_machine(objects: &Snapshot, identity: &Identity, ips: &[IpAddr]) -> bool {
    machines(objects, identity).any(|address| address.parse().is_ok_and(|address| ips.contains(&address)))
}

/// Addresses of machines that were registered with this account.
fn machines<'a>(objects: &'a Snapshot, identity: &'a Identity) -> impl Iterator<Item = &'a str> {
    let own = |name: &Name| *name.namespace == *identity.namespace;
    let from = Name::new(&identity.namespace, "");
    let entries =
        objects.workload_entries.range(from..).take_while(move |(name, _)| own(name)).map(|(_, entry)| &entry.spec);
    entries.filter(|entry| entry.service_account == identity.service_account).map(|entry| &*entry.address)
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
        Registry { objects, cluster: "Kubernetes".to_owned() }
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
    fn a_node_must_be_the_pod_that_it_says() {
        let registry = Registry::of(MESH);
        let claim = |id: &str, account: &str| {
            registry.claim(&Node { id: format!("{id}~shop.svc.cluster.local"), ..Node::default() }, &of(account))
        };
        assert_eq!(claim("sidecar~10.0.0.1~cart-1.shop", "cart"), Ok(Claim::Known));
        assert_eq!(claim("router~10.0.0.1~cart-1.shop", "cart"), Ok(Claim::Known));
        assert!(claim("sidecar~10.0.0.2~cart-1.shop", "cart").unwrap_err().contains("10.0.0.2"));
        assert!(claim("sidecar~10.0.0.1~cart-1.shop", "admin").unwrap_err().contains("runs as"));
        assert_eq!(claim("sidecar~10.0.0.9~new.shop", "cart"), Ok(Claim::Unknown));
        assert!(claim("router~10.0.0.9~gateway.shop", "cart").unwrap_err().contains("known workload"));
        assert_eq!(claim("router~10.1.0.1~machine.shop", "old"), Ok(Claim::Known), "a registered machine");
        assert!(claim("router~10.1.0.2~machine.shop", "old").is_err());
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

//! A workload: name, identity and location of a pod or WorkloadEntry. Ports and readiness belong to endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use config::intern::intern_str;
use config::kinds::pod::{Outcome, Pod, Subdomain};
use config::kinds::workload_entry::WorkloadEntry;
use config::labels::Labels;
use config::locality::Locality;
use config::meta::{Meta, Object};
use config::store::{Name, Snapshot, dense_table};
use imbl::OrdMap;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    /// By its label, else the owner's name (Deployment and the like), else the pod's.
    pub name: Arc<str>,
    pub namespace: Arc<str>,
    pub labels: Labels,
    /// `None`: unknown.
    pub identity: Option<WorkloadIdentity>,
    pub locality: Locality,
    /// Number of locality parts that were written, empty ones included; 0: none.
    pub locality_parts: usize,
    pub node: Arc<str>,
    pub tls_mode: TlsMode,
    pub addresses: Arc<[IpAddr]>,
    /// `<hostname>.<subdomain>`: its own name below that of a headless service.
    pub dns_name: Option<Box<str>>,
}

/// The label `security.istio.io/tlsMode`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// It has a sidecar that accepts mutual TLS.
    Istio,
    /// Also without the label.
    #[default]
    Disabled,
    /// Any other value. It is no sidecar, and yet clients that must decide for all endpoints at once take it for one.
    Other(Arc<str>),
}

impl TlsMode {
    fn new(label: &str) -> Self {
        match label {
            "istio" => Self::Istio,
            "disabled" => Self::Disabled,
            other => Self::Other(intern_str(other)),
        }
    }

    /// The value by which a cluster matches the endpoint; `None`: it has none.
    pub fn endpoint_label(&self) -> Option<&str> {
        match self {
            Self::Istio => Some("istio"),
            Self::Disabled => None,
            Self::Other(value) => Some(&**value).filter(|value| !value.is_empty()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadIdentity {
    pub namespace: Arc<str>,
    pub service_account: Arc<str>,
}

impl WorkloadIdentity {
    pub fn spiffe(&self, trust_domain: &str) -> String {
        ["spiffe://", trust_domain, "/ns/", &*self.namespace, "/sa/", &*self.service_account].concat()
    }
}

pub(crate) const NETWORK: &str = "topology.istio.io/network";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const SUBZONE: &str = "topology.istio.io/subzone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
const CLUSTER: &str = "topology.istio.io/cluster";

const DRAINING: &str = "istio.io/draining";
const TLS_MODE: &str = "security.istio.io/tlsMode";
pub(crate) const WORKLOAD_NAME: &str = "service.istio.io/workload-name";
const LOCALITY_LABELS: [&str; 2] = ["topology.istio.io/locality", "istio-locality"];

impl Workload {
    /// `node_labels`: those of the pod's node, if it is known.
    pub fn of_pod(object: &Object<Pod>, node_labels: Option<&Labels>) -> Self {
        let Object { meta, spec } = object;
        let (locality, place_parts) = locality(&meta.labels, node_labels);
        Self {
            name: meta.labels.get(WORKLOAD_NAME).map_or_else(|| owner_name(meta), intern_str),
            namespace: meta.namespace.clone(),
            identity: Some(WorkloadIdentity {
                namespace: meta.namespace.clone(),
                service_account: spec.service_account.clone(),
            }),
            locality,
            locality_parts: place_parts,
            node: spec.node_name.clone(),
            tls_mode: meta.labels.get(TLS_MODE).map(TlsMode::new).unwrap_or_default(),
            labels: meta.labels.clone(),
            addresses: spec.ips.clone(),
            dns_name: dns_name(object),
        }
    }
}

impl Workload {
    pub fn canonical_name(&self) -> &str {
        let keys = ["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"];
        keys.iter().find_map(|key| self.labels.get(key)).unwrap_or(&self.name)
    }

    pub fn canonical_revision(&self) -> &str {
        let keys = ["service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"];
        keys.iter().find_map(|key| self.labels.get(key)).unwrap_or("latest")
    }

    /// Its labels with those of its locality, network, node and cluster: matched by subsets and failover priorities.
    pub(crate) fn topology_labels(&self, cluster: &str, network: &str) -> Labels {
        topology_labels(&self.labels, &self.locality, cluster, &self.node, network)
    }

    /// It has the draining label: it gets no new clients.
    pub(crate) fn is_draining(&self) -> bool {
        self.labels.get(DRAINING).is_some_and(|value| !value.is_empty())
    }
}

/// A network label takes precedence.
pub(crate) fn topology_labels(labels: &Labels, place: &Locality, cluster: &str, node: &str, network: &str) -> Labels {
    let Locality { region, zone, subzone } = place;
    let named = labels.get(NETWORK).is_some_and(|network| !network.is_empty());
    let network = if named { "" } else { network };
    let all = [
        (REGION, &**region),
        (ZONE, zone),
        (SUBZONE, subzone),
        (CLUSTER, cluster),
        (HOSTNAME, node),
        (NETWORK, network),
    ];
    labels.extended(all.into_iter().filter(|(_, value)| !value.is_empty()))
}

impl Workload {
    /// A WorkloadEntry or an inline endpoint of a ServiceEntry. A service account implies a sidecar, unless a label tells otherwise.
    pub fn of_entry(name: &str, namespace: &Arc<str>, entry: &WorkloadEntry, labels: &Labels) -> Self {
        let account = Some(&entry.service_account).filter(|account| !account.is_empty());
        let (locality, place_parts) = match parse_locality(&entry.locality) {
            declared if !declared.0.is_empty() => declared,
            _ => locality(labels, None),
        };
        Self {
            name: name.into(),
            namespace: namespace.clone(),
            identity: account.map(|account| WorkloadIdentity {
                namespace: namespace.clone(),
                service_account: account.as_str().into(),
            }),
            locality,
            locality_parts: place_parts,
            node: Arc::default(),
            tls_mode: match (labels.get(TLS_MODE), account) {
                (Some(mode), _) => TlsMode::new(mode),
                (None, Some(_)) => TlsMode::Istio,
                (None, None) => TlsMode::Disabled,
            },
            labels: labels.clone(),
            addresses: entry.address.parse().into_iter().collect(),
            dns_name: None,
        }
    }
}

/// Workloads by name and by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workloads {
    by_name: OrdMap<Name, Arc<Workload>>,
    /// Ready pods, adjacent by address: pods on the host network of a node share one, and the last by name is used for it.
    by_address: OrdMap<(Arc<str>, IpAddr, Arc<str>), Arc<Workload>>,
}

impl Workloads {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for (name, pod) in &snapshot.pods {
            found.put(name, Some(pod), snapshot);
        }
        Self { by_name: dense_table(found.by_name), by_address: dense_table(found.by_address) }
    }

    /// `None`: the pod is gone.
    pub(crate) fn put(&mut self, name: &Name, pod: Option<&Arc<Object<Pod>>>, snapshot: &Snapshot) {
        if let Some(old) = self.by_name.remove(name) {
            for address in &*old.addresses {
                self.by_address.remove(&(name.namespace.clone(), *address, name.name.clone()));
            }
        }
        // As in istiod, which does not watch failed pods.
        let Some(pod) = pod.filter(|pod| pod.spec.outcome != Some(Outcome::Failed)) else { return };
        let labels = snapshot
            .nodes
            .get(&Name { namespace: Arc::default(), name: pod.spec.node_name.clone() })
            .map(|node| &node.meta.labels);
        let workload = Arc::new(Workload::of_pod(pod, labels));
        let answers = pod.spec.ready && pod.spec.outcome.is_none();
        for address in pod.spec.ips.iter().filter(|_| answers) {
            self.by_address.insert((name.namespace.clone(), *address, name.name.clone()), workload.clone());
        }
        self.by_name.insert(name.clone(), workload);
    }

    pub(crate) fn named(&self, namespace: &str, name: &str) -> Option<Arc<Workload>> {
        self.by_name.get(&Name::new(namespace, name)).cloned()
    }

    pub(crate) fn at(&self, namespace: &str, address: IpAddr) -> Option<Arc<Workload>> {
        let namespace: Arc<str> = Arc::from(namespace);
        let first = (namespace.clone(), address, Arc::from(""));
        let here = self.by_address.range(first..).take_while(|((n, a, _), _)| *n == namespace && *a == address);
        here.last().map(|(_, workload)| workload.clone())
    }
}

/// The default hostname of a pod is its name.
fn dns_name(object: &Object<Pod>) -> Option<Box<str>> {
    let Subdomain { name, hostname } = object.spec.subdomain.as_deref()?;
    let hostname = if hostname.is_empty() { &*object.meta.name } else { hostname };
    Some(format!("{hostname}.{name}").into())
}

/// The Deployment, CronJob or other owner of a generated pod. A pod without `generateName` keeps its name.
fn owner_name(meta: &Meta) -> Arc<str> {
    let Some(owner) = meta.controller.as_ref().filter(|_| meta.has_generated_name) else { return meta.name.clone() };
    let without = |label: &str| owner.name.strip_suffix(meta.labels.get(label)?)?.strip_suffix('-');
    let known = match &*owner.kind {
        "ReplicaSet" => without("pod-template-hash").or_else(|| without("rollouts-pod-template-hash")),
        "ReplicationController" => meta.labels.get("deploymentconfig").filter(|name| !name.is_empty()),
        "Job" => cron_job(&owner.name),
        _ => None,
    };
    known.map_or_else(|| owner.name.clone(), intern_str)
}

/// The name of a CronJob's Job ends with the minute of its schedule.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let dated = (8..=10).contains(&minute.len()) && minute.bytes().all(|b| b.is_ascii_digit());
    Some(name).filter(|name| dated && !name.is_empty())
}

fn locality_label(labels: &Labels) -> Option<&str> {
    LOCALITY_LABELS.iter().find_map(|key| labels.get(key)).filter(|text| !text.is_empty())
}

/// With the number of parts that were written; a node always has all three.
fn locality(labels: &Labels, node_labels: Option<&Labels>) -> (Locality, usize) {
    if let Some(declared) = locality_label(labels) {
        // Labels cannot hold a slash: dots stand for it.
        let text = if declared.contains('/') { declared.to_owned() } else { declared.replace('.', "/") };
        return parse_locality(&text);
    }
    let label = |keys: &[&str]| intern_str(keys.iter().find_map(|key| node_labels?.get(key)).unwrap_or_default());
    let locality = Locality {
        region: label(&["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]),
        zone: label(&["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]),
        subzone: label(&["topology.istio.io/subzone"]),
    };
    let parts = if locality.is_empty() { 0 } else { 3 };
    (locality, parts)
}

fn parse_locality(text: &str) -> (Locality, usize) {
    let Ok(locality) = text.parse::<Locality>();
    let parts = if locality.is_empty() { 0 } else { text.split('/').count() };
    (locality, parts)
}

/// The locality from labels, with declared parts taking precedence; `None`: neither is set.
pub(crate) fn labelled_locality(labels: &Labels, declared: &Locality) -> Option<Locality> {
    let part = |own: &Arc<str>, key: &str| match own.is_empty() {
        true => labels.get(key).map(intern_str),
        false => Some(own.clone()),
    };
    let parts = [part(&declared.region, REGION), part(&declared.zone, ZONE), part(&declared.subzone, SUBZONE)];
    if parts.iter().all(Option::is_none) {
        // Unchanged: dots do not stand for slashes here.
        let written = locality_label(labels)?.parse();
        return written.ok();
    }
    let [region, zone, subzone] = parts.map(Option::unwrap_or_default);
    Some(Locality { region, zone, subzone })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::meta::Owner;

    fn owned(kind: &str, owner: &str, labels: &[(&str, &str)], has_generated_name: bool) -> Arc<str> {
        let meta = Meta {
            name: Arc::from("pod-x"),
            has_generated_name,
            controller: Some(Box::new(Owner { kind: kind.into(), name: owner.into() })),
            labels: labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            ..Meta::default()
        };
        owner_name(&meta)
    }

    #[test]
    fn a_replica_sets_hash_is_not_part_of_the_name() {
        assert_eq!(&*owned("ReplicaSet", "cart-6f7", &[("pod-template-hash", "6f7")], true), "cart");
        assert_eq!(&*owned("ReplicaSet", "cart-6f7", &[], true), "cart-6f7");
    }

    #[test]
    fn a_pod_named_by_hand_keeps_its_name() {
        assert_eq!(&*owned("ReplicaSet", "cart-6f7", &[("pod-template-hash", "6f7")], false), "pod-x");
    }

    #[test]
    fn a_label_names_the_workload_whichever_owner_it_has() {
        let pod = |labels: &[(&str, &str)]| {
            let owner = Owner { kind: "Job".into(), name: "tidy-28470060".into() };
            let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let meta = Meta { has_generated_name: true, controller: Some(Box::new(owner)), labels, ..Meta::default() };
            Workload::of_pod(&Object { meta, spec: Pod::default() }, None).name
        };
        assert_eq!(&*pod(&[(WORKLOAD_NAME, "night-shift")]), "night-shift");
        assert_eq!(&*pod(&[(WORKLOAD_NAME, "")]), "");
        assert_eq!(&*pod(&[]), "tidy");
    }

    #[test]
    fn only_the_value_istio_is_a_sidecar_and_only_disabled_is_none() {
        let modes = ["istio", "disabled", "Istio", ""].map(TlsMode::new);
        assert_eq!(
            modes,
            [TlsMode::Istio, TlsMode::Disabled, TlsMode::Other("Istio".into()), TlsMode::Other("".into())]
        );
        assert_eq!(modes.each_ref().map(TlsMode::endpoint_label), [Some("istio"), None, Some("Istio"), None]);
    }

    #[test]
    fn a_cron_jobs_minute_is_not_part_of_the_name() {
        assert_eq!(&*owned("Job", "tidy-28470060", &[], true), "tidy");
        assert_eq!(&*owned("Job", "tidy-up", &[], true), "tidy-up");
    }
}

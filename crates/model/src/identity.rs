//! The identity of a proxy: node metadata bound to the authenticated identity of the caller, and compared with the workload's objects.

use std::net::IpAddr;
use std::sync::Arc;

use config::intern::intern_str;
use config::kinds::pod::Pod;
use config::labels::Labels;
use config::meta::Object;
use config::store::Name;
use thiserror::Error;

use crate::mesh::Mesh;
use crate::proxy::{Proxy, ProxyKind, truncated};
use crate::service_entry_endpoint::WorkloadInstance;
use crate::workload::Workload;

/// How far the node metadata of a proxy is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// Not authenticated: namespace and service account are the node's own claims.
    Claimed,
    /// Namespace and service account are those of the authenticated caller.
    Authenticated,
    /// In addition only workloads of that service account may match, and only labels and addresses of such a workload are used.
    Strict,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("the caller may not act for namespace {namespace:?} and service account {service_account:?}")]
pub struct UnauthorizedIdentity {
    pub namespace: String,
    pub service_account: String,
}

/// Why a proxy cannot be the workload that its node names.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WorkloadMismatch {
    #[error("the node is of cluster {node:?}, the caller of {own:?}")]
    Cluster { node: String, own: String },
    #[error("the node id names namespace {node:?}, the caller is of {own:?}")]
    Namespace { node: String, own: String },
    #[error("the pod {pod} runs as {account:?}, the caller as {own:?}")]
    Account { pod: String, account: String, own: String },
    #[error("the address {address} is not of the pod {pod}")]
    Address { address: IpAddr, pod: String },
    #[error("a gateway must be a known workload, and there is no pod {0:?} of the caller")]
    UnknownGateway(String),
}

impl Proxy {
    /// Binds the proxy to the first of its caller's identities (namespace, service account) that it does not contradict. What the node leaves
    /// open is taken from the identity, so that no proxy is served without one.
    pub fn bind<'a>(
        &mut self,
        identities: impl IntoIterator<Item = (&'a str, &'a str)>,
        strict: bool,
    ) -> Result<(), UnauthorizedIdentity> {
        let fits = |claim: &str, own: &str| claim.is_empty() || claim == own;
        let found = identities.into_iter().find(|(namespace, account)| {
            fits(&self.namespace, namespace) && fits(&self.service_account, account) && !namespace.is_empty()
        });
        let Some((namespace, account)) = found else {
            return Err(UnauthorizedIdentity {
                namespace: truncated(&self.namespace),
                service_account: truncated(&self.service_account),
            });
        };
        if self.namespace.is_empty() {
            self.namespace = intern_str(namespace);
            self.metadata.namespace = Some(self.namespace.clone());
        }
        self.service_account = intern_str(account);
        self.assurance = if strict { Assurance::Strict } else { Assurance::Authenticated };
        if strict {
            // Labels are taken from the workload, which is verified.
            self.metadata.labels = Labels::default();
        }
        Ok(())
    }

    /// This workload may belong to the proxy.
    pub(crate) fn may_run_as(&self, workload: &Workload) -> bool {
        let is_own = || {
            let identity = workload.identity.as_ref();
            identity.is_some_and(|it| it.namespace == self.namespace && it.service_account == self.service_account)
        };
        self.assurance != Assurance::Strict || is_own()
    }

    /// Namespaces in the node id and in the DNS domain of the node, both unverified.
    fn named_namespaces(&self) -> impl Iterator<Item = &str> {
        let of_id = self.id.rsplit_once('.').map(|(_, namespace)| namespace);
        let of_domain = self.domain.split_once('.').map(|(namespace, _)| namespace);
        of_id.into_iter().chain(of_domain)
    }
}

impl Mesh {
    /// Verifies that an authenticated proxy is the workload that it claims. A sidecar whose workload is unknown (yet) has no labels; a gateway
    /// is rejected then, because its labels select its configuration.
    pub fn verify(&self, proxy: &Proxy) -> Result<(), WorkloadMismatch> {
        let own = || proxy.namespace.to_string();
        if !self.is_own_cluster(proxy) {
            return Err(WorkloadMismatch::Cluster {
                node: truncated(&proxy.metadata.cluster_id),
                own: self.env.cluster_id.clone(),
            });
        }
        if let Some(other) = proxy.named_namespaces().find(|named| **named != *proxy.namespace) {
            return Err(WorkloadMismatch::Namespace { node: truncated(other), own: own() });
        }
        let pod = proxy.pod().and_then(|name| self.all_objects.pods.get(&name));
        match pod {
            Some(pod) => verify_pod(proxy, pod),
            None if proxy.kind == ProxyKind::Sidecar || self.is_registered(proxy) => Ok(()),
            None => Err(WorkloadMismatch::UnknownGateway(truncated(&proxy.id))),
        }
    }

    /// Its Secrets and pods are those of our snapshot.
    pub fn is_own_cluster(&self, proxy: &Proxy) -> bool {
        let cluster = &proxy.metadata.cluster_id;
        cluster.is_empty() || **cluster == *self.env.cluster_id
    }

    /// A WorkloadEntry of its service account has one of its addresses, healthy or not, discovered or not.
    fn is_registered(&self, proxy: &Proxy) -> bool {
        let entries = self.all_objects.workload_entries.range(Name::new(&proxy.namespace, "")..);
        let mut own = entries.take_while(|(name, _)| name.namespace == proxy.namespace).map(|(_, entry)| &entry.spec);
        own.any(|entry| {
            *entry.service_account == *proxy.service_account
                && entry.address.parse().is_ok_and(|address: IpAddr| proxy.ips.contains(&address))
        })
    }

    /// The pod of a proxy of this cluster; a pod of the same name in another cluster is a different one.
    pub(crate) fn pod_of(&self, proxy: &Proxy) -> Option<&Arc<Object<Pod>>> {
        let name = proxy.pod().filter(|_| self.is_own_cluster(proxy))?;
        let is_own = |pod: &&Arc<Object<Pod>>| pod.spec.service_account == proxy.service_account;
        self.objects.pods.get(&name).filter(|pod| proxy.assurance != Assurance::Strict || is_own(pod))
    }

    /// WorkloadEntries that a proxy with this address may run on, by name.
    pub(crate) fn workload_entries_at<'a>(
        &'a self,
        proxy: &Proxy,
        address: IpAddr,
    ) -> impl Iterator<Item = &'a WorkloadInstance> {
        self.workload_entries.all_at(&proxy.namespace, address).filter(|instance| proxy.may_run_as(&instance.workload))
    }

    /// The inline endpoint of a ServiceEntry at this address, where it may be the proxy's.
    pub(crate) fn listed_instance(&self, proxy: &Proxy, address: IpAddr) -> Option<&WorkloadInstance> {
        self.listed_workloads
            .workload(&proxy.namespace, address)
            .filter(|instance| proxy.may_run_as(&instance.workload))
    }

    /// Addresses of the proxy that may be used to look up other objects.
    pub(crate) fn addresses_of<'a>(&'a self, proxy: &'a Proxy) -> impl Iterator<Item = IpAddr> + 'a {
        proxy.ips.iter().copied().filter(|&address| self.has_address(proxy, address))
    }

    pub(crate) fn has_address(&self, proxy: &Proxy, address: IpAddr) -> bool {
        proxy.assurance != Assurance::Strict
            || self.pod_of(proxy).is_some_and(|pod| pod.spec.ips.contains(&address))
            || self.workload_entries_at(proxy, address).next().is_some()
            || self.listed_instance(proxy, address).is_some()
    }
}

fn verify_pod(proxy: &Proxy, pod: &Object<Pod>) -> Result<(), WorkloadMismatch> {
    let name = || truncated(&proxy.id);
    if pod.spec.service_account != proxy.service_account {
        let account = pod.spec.service_account.to_string();
        return Err(WorkloadMismatch::Account { pod: name(), account, own: proxy.service_account.to_string() });
    }
    match proxy.ips.iter().find(|address| !pod.spec.ips.contains(address)) {
        Some(&address) => Err(WorkloadMismatch::Address { address, pod: name() }),
        None => Ok(()),
    }
}

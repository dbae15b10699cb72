//! Who a proxy is: what its node says, bound to what its caller proved, and compared with what the objects say of the workload.

use std::net::IpAddr;
use std::sync::Arc;

use config::kinds::pod::Pod;
use config::labels::Labels;
use config::meta::Object;
use config::shared::shared_text;
use config::store::Name;
use thiserror::Error;

use crate::entry_endpoint::Machine;
use crate::mesh::Mesh;
use crate::proxy::{Proxy, ProxyKind, shown};
use crate::workload::Workload;

/// How much of what a proxy says of itself is known to be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assurance {
    /// Nobody was asked: namespace and service account are the node's own words.
    Claimed,
    /// Namespace and service account are the caller's.
    Authenticated,
    /// Besides, only workloads of that service account stand for it, and labels and addresses count that such a workload has.
    Strict,
}

#[derive(Debug, Error, PartialEq, Eq)]
#[error("the caller may not act for namespace {namespace:?} and service account {service_account:?}")]
pub struct NotTheCallers {
    pub namespace: String,
    pub service_account: String,
}

/// What speaks against a proxy being the workload that it says.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Mismatch {
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
    /// Makes it one of the first of its caller's identities (namespace, service account) that it does not contradict. What the node left
    /// open is the identity's: nobody is served as nobody.
    pub fn bind<'a>(
        &mut self,
        identities: impl IntoIterator<Item = (&'a str, &'a str)>,
        strict: bool,
    ) -> Result<(), NotTheCallers> {
        let fits = |claim: &str, own: &str| claim.is_empty() || claim == own;
        let found = identities.into_iter().find(|(namespace, account)| {
            fits(&self.namespace, namespace) && fits(&self.service_account, account) && !namespace.is_empty()
        });
        let Some((namespace, account)) = found else {
            return Err(NotTheCallers {
                namespace: shown(&self.namespace),
                service_account: shown(&self.service_account),
            });
        };
        if self.namespace.is_empty() {
            self.namespace = shared_text(namespace);
            self.metadata.namespace = Some(self.namespace.clone());
        }
        self.service_account = shared_text(account);
        self.assurance = if strict { Assurance::Strict } else { Assurance::Authenticated };
        if strict {
            // Those that somebody vouches for are the workload's.
            self.metadata.labels = Labels::default();
        }
        Ok(())
    }

    /// The workload may stand for this proxy.
    pub(crate) fn may_be(&self, workload: &Workload) -> bool {
        let is_own = || {
            let identity = workload.identity.as_ref();
            identity.is_some_and(|it| it.namespace == self.namespace && it.service_account == self.service_account)
        };
        self.assurance != Assurance::Strict || is_own()
    }

    /// Both are names that the node gave itself, where a namespace is part of them.
    fn named_namespaces(&self) -> impl Iterator<Item = &str> {
        let of_id = self.id.rsplit_once('.').map(|(_, namespace)| namespace);
        let of_domain = self.domain.split_once('.').map(|(namespace, _)| namespace);
        of_id.into_iter().chain(of_domain)
    }
}

impl Mesh {
    /// Whether a proxy with a proven identity is the workload that it says. A sidecar whose workload nobody knows (yet) is one without
    /// labels; a gateway is refused then, because its labels are all that it is.
    pub fn verify(&self, proxy: &Proxy) -> Result<(), Mismatch> {
        let own = || proxy.namespace.to_string();
        if !self.is_own_cluster(proxy) {
            return Err(Mismatch::Cluster {
                node: shown(&proxy.metadata.cluster_id),
                own: self.env.cluster_id.clone(),
            });
        }
        if let Some(other) = proxy.named_namespaces().find(|named| **named != *proxy.namespace) {
            return Err(Mismatch::Namespace { node: shown(other), own: own() });
        }
        let pod = proxy.pod().and_then(|name| self.whole.pods.get(&name));
        match pod {
            Some(pod) => verify_pod(proxy, pod),
            None if proxy.kind == ProxyKind::Sidecar || self.is_registered(proxy) => Ok(()),
            None => Err(Mismatch::UnknownGateway(shown(&proxy.id))),
        }
    }

    /// Its Secrets and pods are those that we know.
    pub fn is_own_cluster(&self, proxy: &Proxy) -> bool {
        let cluster = &proxy.metadata.cluster_id;
        cluster.is_empty() || **cluster == *self.env.cluster_id
    }

    /// There is a WorkloadEntry of its service account with one of its addresses, healthy or not, discovered or not.
    fn is_registered(&self, proxy: &Proxy) -> bool {
        let entries = self.whole.workload_entries.range(Name::new(&proxy.namespace, "")..);
        let mut own = entries.take_while(|(name, _)| name.namespace == proxy.namespace).map(|(_, entry)| &entry.spec);
        own.any(|entry| {
            *entry.service_account == *proxy.service_account
                && entry.address.parse().is_ok_and(|address: IpAddr| proxy.ips.contains(&address))
        })
    }

    /// The pod of a proxy of this cluster; in another one a pod of the same name is another's.
    pub(crate) fn pod_of(&self, proxy: &Proxy) -> Option<&Arc<Object<Pod>>> {
        let name = proxy.pod().filter(|_| self.is_own_cluster(proxy))?;
        let is_own = |pod: &&Arc<Object<Pod>>| pod.spec.service_account == proxy.service_account;
        self.objects.pods.get(&name).filter(|pod| proxy.assurance != Assurance::Strict || is_own(pod))
    }

    /// WorkloadEntries that a proxy with this address may run on, by name.
    pub(crate) fn machines_at<'a>(&'a self, proxy: &Proxy, address: IpAddr) -> impl Iterator<Item = &'a Machine> {
        self.machines.all_at(&proxy.namespace, address).filter(|machine| proxy.may_be(&machine.workload))
    }

    /// What ServiceEntries list at this address, where it may be the proxy.
    pub(crate) fn listed_machine(&self, proxy: &Proxy, address: IpAddr) -> Option<&Machine> {
        self.listed.machine(&proxy.namespace, address).filter(|machine| proxy.may_be(&machine.workload))
    }

    /// Addresses of the proxy by which other objects are found for it.
    pub(crate) fn addresses_of<'a>(&'a self, proxy: &'a Proxy) -> impl Iterator<Item = IpAddr> + 'a {
        proxy.ips.iter().copied().filter(|&address| self.has_address(proxy, address))
    }

    pub(crate) fn has_address(&self, proxy: &Proxy, address: IpAddr) -> bool {
        proxy.assurance != Assurance::Strict
            || self.pod_of(proxy).is_some_and(|pod| pod.spec.ips.contains(&address))
            || self.machines_at(proxy, address).next().is_some()
            || self.listed_machine(proxy, address).is_some()
    }
}

fn verify_pod(proxy: &Proxy, pod: &Object<Pod>) -> Result<(), Mismatch> {
    let name = || shown(&proxy.id);
    if pod.spec.service_account != proxy.service_account {
        let account = pod.spec.service_account.to_string();
        return Err(Mismatch::Account { pod: name(), account, own: proxy.service_account.to_string() });
    }
    match proxy.ips.iter().find(|address| !pod.spec.ips.contains(address)) {
        Some(&address) => Err(Mismatch::Address { address, pod: name() }),
        None => Ok(()),
    }
}

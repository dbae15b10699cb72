//! How many classes there may be, of one client and in total: what a node says of itself decides its class, and each class costs memory and time. Counts
//! only; classes are in `engine`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use xds::{Caller, NodeError};

use crate::layer_caches::LayerIds;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassLimits {
    /// Classes that one identity had built, or one address where nobody is authenticated. A service account that many workloads share has
    /// one for each of them.
    pub per_client: usize,
    pub total: usize,
}

impl Default for ClassLimits {
    fn default() -> Self {
        ClassLimits { per_client: 2_000, total: 20_000 }
    }
}

/// Who has classes built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassClient {
    Identity(Arc<str>),
    Address(IpAddr),
    /// Inside of the process: only the total is limited.
    Nobody,
}

impl ClassClient {
    pub(crate) fn new(caller: Option<&Caller>, address: IpAddr) -> ClassClient {
        match caller.and_then(|caller| caller.identities.first()) {
            Some(identity) => ClassClient::Identity(identity.as_str().into()),
            None => ClassClient::Address(address),
        }
    }
}

/// The client that each class was built for. Proxies that join a class later cost nothing.
#[derive(Default)]
pub(crate) struct ClassCounts {
    clients: HashMap<LayerIds, ClassClient>,
    counts: HashMap<ClassClient, usize>,
}

impl ClassCounts {
    pub(crate) fn add(&mut self, ids: LayerIds, client: &ClassClient) {
        if *client != ClassClient::Nobody && self.clients.insert(ids, client.clone()).is_none() {
            *self.counts.entry(client.clone()).or_default() += 1;
        }
    }

    /// Forgets the classes that are no more.
    pub(crate) fn retain(&mut self, exists: impl Fn(&LayerIds) -> bool) {
        self.clients.retain(|ids, _| exists(ids));
        self.counts.clear();
        for client in self.clients.values() {
            *self.counts.entry(client.clone()).or_default() += 1;
        }
    }

    /// Whether the client may have one more. `total`: of all clients.
    pub(crate) fn check(&self, client: &ClassClient, total: usize, limits: ClassLimits) -> Result<(), NodeError> {
        let ClassLimits { per_client, total: most } = limits;
        let why = if self.counts.get(client).is_some_and(|count| *count >= per_client) {
            let whom = match client {
                ClassClient::Identity(identity) => identity.to_string(),
                ClassClient::Address(address) => address.to_string(),
                ClassClient::Nobody => return Ok(()),
            };
            format!(
                "{whom} has {per_client} proxies of different configuration; raise MELTEMI_MAX_CLASSES_PER_IDENTITY if these are different workloads"
            )
        } else if total >= most {
            format!("{most} different configurations are served; raise MELTEMI_MAX_CLASSES, or try another instance")
        } else {
            return Ok(());
        };
        Err(NodeError::TooManyClasses(why))
    }
}

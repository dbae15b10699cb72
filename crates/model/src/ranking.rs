//! All services in order of precedence, indexed by host and by namespace. Visibility is checked elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::host::Host;

use crate::service::Service;

#[derive(Debug, Default)]
pub(crate) struct Ranking {
    all: Vec<Arc<Service>>,
    /// Positions in `all`; of one host in order of precedence.
    by_host: Box<[u32]>,
    by_namespace: Box<[u32]>,
}

impl Ranking {
    pub(crate) fn new<'a>(services: impl Iterator<Item = &'a Arc<Service>>) -> Self {
        let mut all: Vec<_> = services.cloned().collect();
        all.sort_by(|a, b| a.precedence(b));
        let count = u32::try_from(all.len()).expect("services fit in memory");
        let (mut by_host, mut by_namespace): (Box<[u32]>, Box<[u32]>) = ((0..count).collect(), (0..count).collect());
        by_host.sort_by(|&a, &b| all[a as usize].host.cmp(&all[b as usize].host));
        by_namespace.sort_by(|&a, &b| all[a as usize].namespace.cmp(&all[b as usize].namespace));
        Self { all, by_host, by_namespace }
    }

    pub(crate) fn all(&self) -> &[Arc<Service>] {
        &self.all
    }

    pub(crate) fn of_host(&self, host: &Host) -> impl Iterator<Item = &Arc<Service>> + Clone {
        let first = self.by_host.partition_point(|&place| self.at(place).host < *host);
        self.by_host[first..].iter().map(|&place| self.at(place)).take_while(move |service| service.host == *host)
    }

    /// Services of any of these namespaces, in order of precedence.
    pub(crate) fn of_namespaces(&self, namespaces: &BTreeSet<&str>) -> Vec<&Arc<Service>> {
        let of_one = |namespace: &&str| {
            let first = self.by_namespace.partition_point(|&place| *self.at(place).namespace < **namespace);
            let last = self.by_namespace.partition_point(|&place| *self.at(place).namespace <= **namespace);
            &self.by_namespace[first..last]
        };
        let mut places: Vec<u32> = namespaces.iter().flat_map(of_one).copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| self.at(place)).collect()
    }

    fn at(&self, place: u32) -> &Arc<Service> {
        &self.all[place as usize]
    }
}

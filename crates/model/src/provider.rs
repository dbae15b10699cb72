//! Services of the mesh config's extension providers: `host`, or `namespace/host` where several namespaces declare it.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::host::Host;
use config::mesh::MeshConfig;

use crate::service::Service;

/// Hosts by the service as providers write it; absent: unknown or ambiguous.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderHosts(BTreeMap<String, Host>);

impl ProviderHosts {
    pub(crate) fn new(config: &MeshConfig, services: &[Arc<Service>]) -> Self {
        let written = config.extension_providers.iter().filter_map(|provider| provider.provider.as_ref());
        let names = written.flat_map(|provider| provider.services());
        Self(names.filter_map(|name| Some((name.to_owned(), find_host(name, services)?))).collect())
    }

    pub(crate) fn get(&self, written: &str) -> Option<&Host> {
        self.0.get(written)
    }
}

fn find_host(written: &str, services: &[Arc<Service>]) -> Option<Host> {
    let (namespace, host) = match written.split_once('/') {
        Some((namespace, host)) => (Some(namespace), Host::new(host)),
        None => (None, Host::new(written)),
    };
    let here = |service: &&Arc<Service>| {
        service.host == host && namespace.is_none_or(|namespace| *service.namespace == *namespace)
    };
    let mut declared = services.iter().filter(here);
    let first = declared.next()?;
    declared.all(|other| other.namespace == first.namespace).then(|| first.host.clone())
}

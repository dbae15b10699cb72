//! The mesh's patterns for statistics names of clusters and TCP chains.

use model::{Placement, Port, Service};

/// What a pattern may name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) host: String,
    /// Without the domain; a host that is no Kubernetes service stands for itself.
    pub(crate) short: String,
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) port_name: String,
    /// Empty: the whole service.
    pub(crate) subset: String,
    /// `None`: the token stays as it is, as istiod leaves it on listeners.
    pub(crate) target: Option<u16>,
}

impl Named {
    pub(crate) fn port(service: &Service, port: &Port, target: Option<u16>) -> Self {
        let host = service.host.to_string();
        Self {
            short: if service.is_kubernetes() {
                [&*service.name, ".", &*service.namespace].concat()
            } else {
                host.clone()
            },
            host,
            name: service.name.to_string(),
            port: port.number,
            port_name: port.name.clone(),
            subset: String::new(),
            target,
        }
    }

    /// A Sidecar has no host: its name and the workload's namespace stand for one. One of the root namespace counts as one of each namespace.
    pub(crate) fn sidecar(placement: &Placement) -> Self {
        let name = placement.scope.sidecar.as_ref().map_or("", |object| &object.meta.name);
        let host = format!("{name}.{}", placement.proxy.namespace);
        Self { short: host.clone(), name: host.clone(), host, ..Self::default() }
    }
}

/// `None`: the mesh has no pattern.
pub(crate) fn filled(pattern: &str, named: impl FnOnce() -> Named) -> Option<String> {
    if pattern.is_empty() {
        return None;
    }
    let named = named();
    let text = pattern
        .replace("%SERVICE%", &named.short)
        .replace("%SERVICE_NAME%", &named.name)
        .replace("%SERVICE_FQDN%", &named.host)
        .replace("%SUBSET_NAME%", &named.subset)
        .replace("%SERVICE_PORT%", &named.port.to_string())
        .replace("%SERVICE_PORT_NAME%", &named.port_name);
    Some(match named.target {
        Some(target) => text.replace("%TARGET_PORT%", &target.to_string()),
        None => text,
    })
}

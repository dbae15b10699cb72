//! The mesh's patterns for statistics names of clusters and TCP filter chains.

use model::{Placement, Port, Service};

/// The values that a pattern may use.
#[derive(Debug, Clone, Default)]
pub(crate) struct PatternValues {
    pub(crate) host: String,
    /// Without the domain; a host outside Kubernetes is taken as it is.
    pub(crate) short: String,
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) port_name: String,
    /// Empty: the whole service.
    pub(crate) subset: String,
    /// `None`: the token is left in place, as istiod does for listeners.
    pub(crate) target: Option<u16>,
}

impl PatternValues {
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

    /// A Sidecar has no host: its name and the workload's namespace are used. A Sidecar of the root namespace counts as one of each
    /// namespace.
    pub(crate) fn sidecar(placement: &Placement) -> Self {
        let name = placement.scope.sidecar.as_ref().map_or("", |object| &object.meta.name);
        let host = format!("{name}.{}", placement.proxy.namespace);
        Self { short: host.clone(), name: host.clone(), host, ..Self::default() }
    }
}

/// `None`: the mesh has no pattern.
pub(crate) fn expand(pattern: &str, named: impl FnOnce() -> PatternValues) -> Option<String> {
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

//! External authorizers: the extension providers that CUSTOM policies name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::host::Host;
use config::mesh::{ExtensionProvider, ProviderKind};
use config::store::Name;

use crate::mesh::Mesh;

/// A provider that can be called.
#[derive(Debug, Clone, PartialEq)]
pub struct Authorizer {
    /// An `envoyExtAuthzHttp` or `envoyExtAuthzGrpc`.
    pub provider: ProviderKind,
    pub host: Host,
    pub port: u16,
}

/// Why a provider cannot be called.
type ProviderFault = String;

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Authorizers {
    by_name: BTreeMap<String, Result<Arc<Authorizer>, ProviderFault>>,
    /// The hosts that they refer to.
    hosts: BTreeSet<Host>,
}

impl Authorizers {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        let mut made = Self::default();
        for provider in &mesh.config.extension_providers {
            let Some((service, port)) = provider.provider.as_ref().and_then(service_and_port) else { continue };
            made.hosts.insert(Host::new(service.rsplit('/').next().unwrap_or_default()));
            let found = validate_port(provider, port).and_then(|port| {
                let host = resolve_host(mesh, service)?;
                let provider = provider.provider.clone().ok_or("it has no kind")?;
                Ok(Arc::new(Authorizer { provider, host, port }))
            });
            made.by_name.insert(provider.name.clone(), found);
        }
        made
    }

    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Authorizer>, ProviderFault> {
        match self.by_name.get(name) {
            Some(found) => found.as_ref().map_err(Clone::clone),
            None => {
                Err(format!("the mesh config has no authorization provider {name:?}; add it to extensionProviders"))
            }
        }
    }

    /// A change of this service may enable or disable a provider.
    pub(crate) fn asks(&self, service: &Name) -> bool {
        !self.hosts.is_empty() && self.hosts.contains(&Host::new(&service.name))
    }
}

/// Service and port; `None`: a provider of another kind.
fn service_and_port(provider: &ProviderKind) -> Option<(&str, u32)> {
    match provider {
        ProviderKind::EnvoyExtAuthzHttp(http) => Some((&http.service, http.port)),
        ProviderKind::EnvoyExtAuthzGrpc(grpc) => Some((&grpc.service, grpc.port)),
        _ => None,
    }
}

/// The port, if the provider itself is valid.
fn validate_port(provider: &ExtensionProvider, port: u32) -> Result<u16, ProviderFault> {
    if !is_label(&provider.name) {
        return Err("its name must be lower-case letters, digits and hyphens, at most 63".into());
    }
    if let Some(fault) = provider.faults().into_iter().next() {
        return Err(fault);
    }
    if let Some(ProviderKind::EnvoyExtAuthzHttp(http)) = &provider.provider {
        let lists = [
            &http.include_request_headers_in_check,
            &http.include_headers_in_check,
            &http.headers_to_downstream_on_deny,
            &http.headers_to_downstream_on_allow,
            &http.headers_to_upstream_on_allow,
        ];
        if lists.into_iter().flatten().any(|header| header == "*") {
            return Err("a header list holds \"*\"; write a prefix or suffix, like x-*".into());
        }
    }
    u16::try_from(port).map_err(|_| format!("port {port} is not a port"))
}

/// The name becomes part of metadata that filters compare.
fn is_label(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(inside) && !name.starts_with('-') && !name.ends_with('-')
}

/// `namespace/host`, or a host that only one namespace declares.
fn resolve_host(mesh: &Mesh, service: &str) -> Result<Host, ProviderFault> {
    if let Some((namespace, host)) = service.split_once('/') {
        let host = Host::new(host);
        let found = mesh.declares(&Name::new(namespace, host.as_str()));
        return if found { Ok(host) } else { Err(format!("no service {host} in namespace {namespace}")) };
    }
    let host = Host::new(service);
    let namespaces: BTreeSet<&Arc<str>> =
        mesh.all_services().filter(|service| service.host == host).map(|service| &service.namespace).collect();
    match namespaces.len() {
        0 => Err(format!("no service {host}")),
        1 => Ok(host),
        _ => Err(format!("several namespaces have a service {host}; write namespace/{host}")),
    }
}

//! The names by which a service is called: full, short as its client's namespace allows, and by address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::host::Host;
use model::{Mesh, Placement, Resolution, Service};

/// In istiod's order; the first virtual host that has a domain keeps it.
pub(super) fn of_service(placement: &Placement, service: &Service, aliases: &[Arc<Service>]) -> Vec<String> {
    let mut domains = names(placement, service);
    domains.extend(addresses(placement, service));
    for alias in aliases {
        domains.extend(names(placement, alias));
    }
    domains
}

/// ExternalName services by the host that they finally stand for; loops and unknown hosts stand for nothing.
pub(super) fn aliases(mesh: &Mesh, placement: &Placement) -> BTreeMap<Host, Vec<Arc<Service>>> {
    let mut found: BTreeMap<Host, Vec<Arc<Service>>> = BTreeMap::new();
    for service in placement.scope.services.iter().filter(|service| service.is_alias()) {
        if let Some(host) = final_target(mesh, service) {
            found.entry(host).or_default().push(service.clone());
        }
    }
    found
}

/// How many names may stand for each other in a row.
const LONGEST_CHAIN: usize = 32;

fn final_target(mesh: &Mesh, alias: &Service) -> Option<Host> {
    let Resolution::Alias(mut host) = alias.resolution.clone() else { return None };
    for _ in 0..LONGEST_CHAIN {
        match &mesh.service(&host)?.resolution {
            Resolution::Alias(next) => host = next.clone(),
            _ => return Some(host),
        }
    }
    None
}

fn names(placement: &Placement, service: &Service) -> Vec<String> {
    let full = service.host.as_str();
    let (name, namespace) = (&service.name, &service.namespace);
    let mut names = vec![full.to_owned(), format!("{full}.")];
    if namespace == &placement.proxy.namespace {
        names.extend([name.to_string(), format!("{name}.{namespace}.svc"), format!("{name}.{namespace}")]);
    } else {
        names.extend([format!("{name}.{namespace}"), format!("{name}.{namespace}.svc")]);
    }
    // Each pod of a headless service has a name below the service's.
    if service.is_headless() {
        names.extend(names.clone().into_iter().map(|name| format!("*.{name}")));
    }
    names
}

fn addresses(placement: &Placement, service: &Service) -> impl Iterator<Item = String> {
    let (v4, v6) = (placement.has_ipv4(), placement.has_ipv6());
    let usable = move |address: &&IpAddr| if address.is_ipv4() { v4 } else { v6 };
    service.addresses.iter().filter(usable).map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    })
}

//! The domains of a service's virtual host: full and short host names, and addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use config::host::Host;
use model::{Mesh, Placement, Resolution, Service};

/// In istiod's order; the first virtual host with a domain keeps it. `port`: each name also with that port.
pub(super) fn of_service(
    placement: &Placement,
    service: &Service,
    aliases: &[Arc<Service>],
    port: Option<u16>,
) -> Vec<String> {
    let all = [&service.host].into_iter().chain(aliases.iter().map(|alias| &alias.host));
    let mut names: Vec<_> = all
        .flat_map(|host| names(host.as_str(), &placement.proxy.domain))
        .flat_map(|name| with_port(name, port))
        .collect();
    // Each pod of a headless service has a name below the service's.
    if service.is_headless() && service.is_kubernetes() {
        names.extend(names.clone().into_iter().map(|name| format!("*.{name}")));
    }
    names.extend(addresses(placement, service).flat_map(|address| with_port(address, port)));
    names
}

/// ExternalName services by their final target; loops and unknown targets are left out. A client that sees the target may use all of its
/// aliases, unless a Sidecar does not import them.
pub(super) fn aliases(mesh: &Mesh, placement: &Placement) -> BTreeMap<Host, Vec<Arc<Service>>> {
    let mut found: BTreeMap<Host, Vec<Arc<Service>>> = BTreeMap::new();
    for alias in mesh.aliases() {
        let target = final_target(mesh, alias).and_then(|host| placement.scope.service(&host));
        let taken = target.filter(|target| placement.scope.imports_alias(&placement.scope_key, target, &alias.host));
        if let Some(target) = taken {
            found.entry(target.host.clone()).or_default().push(alias.clone());
        }
    }
    found
}

/// The aliases of a host, as SNI.
pub(crate) fn alias_names(mesh: &Mesh, placement: &Placement, host: &Host) -> Vec<String> {
    let found = aliases(mesh, placement).remove(host).unwrap_or_default();
    found.iter().flat_map(|alias| names(alias.host.as_str(), &placement.proxy.domain)).collect()
}

/// The maximum length of a chain of aliases.
const MAX_ALIAS_CHAIN: usize = 32;

fn final_target(mesh: &Mesh, alias: &Service) -> Option<Host> {
    let Resolution::Alias(mut host) = alias.resolution.clone() else { return None };
    for _ in 0..MAX_ALIAS_CHAIN {
        match &mesh.service(&host)?.resolution {
            Resolution::Alias(next) => host = next.clone(),
            _ => return Some(host),
        }
    }
    None
}

fn with_port(name: String, port: Option<u16>) -> Vec<String> {
    match port {
        None => vec![name],
        Some(port) => vec![name.clone(), format!("{name}:{port}")],
    }
}

/// `domain`: the client's, `namespace.svc.suffix`.
fn names(host: &str, domain: &str) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    if host.parse::<IpAddr>().is_err() {
        names.push([host, "."].concat());
    }
    names.extend(short_names(host, domain).unwrap_or_default());
    names
}

/// `None`: the host is not a service of the client's cluster.
fn short_names(host: &str, domain: &str) -> Option<Vec<String>> {
    let (own, suffix) = domain.split_once(".svc.")?;
    let local = host.strip_suffix(suffix)?.strip_suffix(".svc.")?;
    let (name, namespace) = local.split_once('.')?;
    if namespace == own {
        return Some(vec![name.to_owned(), [local, ".svc"].concat(), local.to_owned()]);
    }
    Some(vec![local.to_owned(), [local, ".svc"].concat()])
}

fn addresses(placement: &Placement, service: &Service) -> impl Iterator<Item = String> {
    let single = placement.addresses_of(service).into_iter().map(|address| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    });
    let ranges = service.ranges.iter().map(|range| match range.address {
        IpAddr::V4(_) => range.to_string(),
        IpAddr::V6(_) => format!("[{range}]"),
    });
    single.chain(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_for_services_of_the_cluster() {
        let check = |host: &str, want: &[&str]| assert_eq!(names(host, "shop.svc.cluster.local"), want, "{host}");
        check(
            "cart.shop.svc.cluster.local",
            &["cart.shop.svc.cluster.local", "cart.shop.svc.cluster.local.", "cart", "cart.shop.svc", "cart.shop"],
        );
        check(
            "rates.bank.svc.cluster.local",
            &["rates.bank.svc.cluster.local", "rates.bank.svc.cluster.local.", "rates.bank", "rates.bank.svc"],
        );
        check("api.example.com", &["api.example.com", "api.example.com."]);
        check("10.0.0.1", &["10.0.0.1"]);
    }
}

//! The DNS name table (NDS): services by virtual address, headless ones by the addresses of their pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use config::diagnostic::ObjectId;
use model::{Endpoint, Health, Mesh, Placement, Service};
use wire::istio::networking::nds::v1::{NameTable, name_table::NameInfo};

use crate::translated::Translated;

const KUBERNETES: &str = "Kubernetes";
const EXTERNAL: &str = "External";

/// Every imported host name that has an address. A gateway gets an empty table.
pub fn name_table(mesh: &Mesh, placement: &Placement) -> Translated<NameTable> {
    let mut table = NameTable::default();
    let mut made_from: BTreeSet<ObjectId> = BTreeSet::new();
    if placement.is_gateway() {
        return Translated::new(table, made_from);
    }
    for service in placement.scope.egress.iter().flat_map(|egress| &egress.services) {
        let mut addresses = placement.addresses_of(service);
        // As in istiod a headless Service counts as IPv4, whatever its pods have.
        let headless = service.is_headless() && (placement.has_ipv4() || !service.is_kubernetes());
        if addresses.is_empty() && service.ranges.is_empty() && headless {
            addresses = add_pods(&mut table, mesh, placement, service);
        }
        if !addresses.is_empty() {
            made_from.insert(service.made_from.clone());
            add(&mut table, service, &addresses);
        }
    }
    Translated::new(table, made_from)
}

/// A Kubernetes Service takes precedence for its name; other claims are merged.
fn add(table: &mut NameTable, service: &Service, addresses: &[IpAddr]) {
    let ips = addresses.iter().map(ToString::to_string);
    match table.table.get_mut(service.host.as_str()) {
        Some(entry) if entry.registry == KUBERNETES => {}
        Some(entry) if !service.is_kubernetes() => entry.ips.extend(ips),
        _ => drop(table.table.insert(service.host.to_string(), info(service, &service.name, ips.collect()))),
    }
}

fn info(service: &Service, short: &str, ips: Vec<String>) -> NameInfo {
    if !service.is_kubernetes() {
        return NameInfo { ips, registry: EXTERNAL.into(), ..NameInfo::default() };
    }
    let namespace = service.namespace.to_string();
    NameInfo { ips, registry: KUBERNETES.into(), shortname: short.to_owned(), namespace, ..NameInfo::default() }
}

/// Adds each pod that has a name below the service's domain; returns the addresses of all.
fn add_pods(table: &mut NameTable, mesh: &Mesh, placement: &Placement, service: &Service) -> Vec<IpAddr> {
    let Some(port) = service.ports.first() else { return Vec::new() };
    // Connections to a pod use no network gateway.
    let reached = |endpoint: &&Endpoint| placement.is_in_network(&endpoint.network);
    let published = |endpoint: &&Endpoint| service.publish_not_ready || endpoint.health == Health::Ready;
    let mut all = Vec::new();
    for endpoint in mesh.endpoints_at(service, port.number).into_iter().filter(reached).filter(published) {
        let Some(address) = endpoint.address.ip() else { continue };
        all.push(address);
        let Some(name) = &endpoint.workload.dns_name else { continue };
        let Some((_, domain)) = service.host.as_str().split_once('.') else { continue };
        let entry = table.table.entry(format!("{name}.{domain}")).or_insert_with(|| info(service, name, Vec::new()));
        let ip = address.to_string();
        if !entry.ips.contains(&ip) {
            entry.ips.push(ip);
        }
    }
    all
}

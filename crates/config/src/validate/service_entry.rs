//! ServiceEntry: hosts, addresses, ports, and constraints of each resolution. Conflicts with other objects are in `model`.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::label::{Exported, check_export_to, check_labels, check_workload_selector, label_fault};
use super::network::{Family, is_ip, protocol_fault, subnet_fault};
use super::workload_entry::{Owner, check_ports, check_static};
use crate::kinds::service_entry::{ServiceEntry, ServiceEntryLocation, ServiceEntryResolution};
use crate::kinds::workload_entry::WorkloadEntry;
use crate::mesh::dns_name::{name_fault, wildcard_name_fault};
use crate::meta::Meta;

pub(super) fn check(at: &FieldContext<'_>, meta: &Meta, entry: &ServiceEntry) {
    check_workload_selector(at, entry.workload_selector.as_ref());
    let both = entry.workload_selector.is_some() && !entry.endpoints.is_empty();
    at.reject_if("endpoints", both, "endpoints are written or selected, not both; remove them or workloadSelector");
    check_hosts(at, entry);
    check_addresses(at, entry);
    check_service_ports(at, meta, entry);
    match entry.resolution {
        ServiceEntryResolution::None => check_none(at, entry),
        ServiceEntryResolution::Static => {
            let owner = Owner::Static(port_names(entry));
            at.each("endpoints", &entry.endpoints, |at, endpoint| check_static(at, endpoint, &owner));
        }
        ServiceEntryResolution::Dns | ServiceEntryResolution::DnsRoundRobin => check_dns(at, entry),
        ServiceEntryResolution::DynamicDns => check_dynamic(at, meta, entry),
    }
    check_export_to(at, &meta.namespace, &entry.export_to, Exported::ServiceEntry);
}

fn port_names(entry: &ServiceEntry) -> BTreeSet<&str> {
    entry.ports.iter().map(|port| port.name.as_str()).collect()
}

fn check_hosts(at: &FieldContext<'_>, entry: &ServiceEntry) {
    at.reject_if("hosts", entry.hosts.is_empty(), "name at least one host");
    at.each("hosts", &entry.hosts, |at, host| {
        if host == "*" {
            return at.unfit("* would be every host there is; name hosts, or a domain such as *.example.com");
        }
        at.reject_here(wildcard_name_fault(host));
        let partial = host.contains('*') && !host.starts_with("*.");
        if partial && entry.resolution != ServiceEntryResolution::DynamicDns {
            at.warn(format!("{host:?} has a * for a part of a name, which is not matched; write *.example.com"));
        }
    });
    // TCP without TLS does not carry the host name.
    let ambiguous = |protocol: &str| !matches!(Family::of(protocol), Some(Family::Http | Family::Tls));
    if entry.resolution != ServiceEntryResolution::None
        && entry.hosts.len() > 1
        && let Some(port) = entry.ports.iter().find(|port| ambiguous(&port.protocol))
    {
        at.field("hosts").error(format!(
            "traffic to port {} does not say which host it is for; write one ServiceEntry per host, or resolution NONE",
            port.number
        ));
    }
}

fn check_addresses(at: &FieldContext<'_>, entry: &ServiceEntry) {
    at.each("addresses", &entry.addresses, |at, address| at.reject_here(subnet_fault(address)));
    let ranges = entry.addresses.iter().any(|address| address.contains('/'));
    let fits = matches!(entry.resolution, ServiceEntryResolution::None | ServiceEntryResolution::Static);
    at.reject_if(
        "addresses",
        ranges && !fits,
        "ranges are for resolution NONE and STATIC only; write single addresses",
    );
}

fn check_service_ports(at: &FieldContext<'_>, meta: &Meta, entry: &ServiceEntry) {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let addressed = !entry.addresses.is_empty() || gets_address(meta, entry);
    at.each("ports", &entry.ports, |at, port| {
        at.reject_if("name", !names.insert(&port.name), "another port has this name; rename one");
        at.reject_if("number", !numbers.insert(port.number), "another port has this number; remove one");
        if port.target_port != 0 {
            at.check_port("targetPort", port.target_port);
        }
        if !addressed && matches!(port.protocol.as_str(), "" | "TCP") {
            at.warn("plain TCP is distinguished by address, and none is given or allocated; add addresses");
        }
        at.reject("name", label_fault(&port.name));
        at.reject("protocol", protocol_fault(&port.protocol));
        at.check_port("number", port.number);
    });
}

/// Addresses are allocated where they can be used, unless a label disables it.
fn gets_address(meta: &Meta, entry: &ServiceEntry) -> bool {
    let opted_out =
        meta.labels.get("networking.istio.io/enable-autoallocate-ip").is_some_and(|v| v.eq_ignore_ascii_case("false"));
    entry.resolution != ServiceEntryResolution::None && !opted_out
}

fn check_none(at: &FieldContext<'_>, entry: &ServiceEntry) {
    at.reject_if(
        "endpoints",
        !entry.endpoints.is_empty(),
        "resolution NONE keeps the address of the caller; remove endpoints",
    );
    if entry.workload_selector.is_some() {
        at.field("workloadSelector")
            .warn("resolution NONE keeps the address of the caller, so that nothing selected is used");
    }
}

fn check_dns(at: &FieldContext<'_>, entry: &ServiceEntry) {
    if entry.endpoints.is_empty()
        && let Some(host) = entry.hosts.iter().find(|host| name_fault(host).is_some())
    {
        at.field("hosts").error(format!("{host:?} cannot be looked up; name a host in full, or add endpoints"));
    }
    let robin = entry.resolution == ServiceEntryResolution::DnsRoundRobin;
    at.reject_if(
        "endpoints",
        robin && entry.endpoints.len() > 1,
        "DNS_ROUND_ROBIN follows one name; keep one endpoint, or use DNS",
    );
    let ports = port_names(entry);
    at.each("endpoints", &entry.endpoints, |at, endpoint| check_dns_endpoint(at, endpoint, &ports));
    let tcp = |protocol: &str| matches!(Family::of(protocol), Some(Family::Tls | Family::Tcp));
    if !entry.addresses.is_empty() && entry.hosts.len() > 1 && entry.ports.iter().any(|port| tcp(&port.protocol)) {
        at.field("hosts")
            .warn("traffic to an address does not say which host it is for; write one ServiceEntry per host");
    }
}

fn check_dns_endpoint(at: &FieldContext<'_>, endpoint: &WorkloadEntry, ports: &BTreeSet<&str>) {
    let address = &endpoint.address;
    if !is_ip(address) && name_fault(address).is_some() {
        at.field("address").error(format!("{address:?} is neither an IP address nor a host name"));
    }
    check_labels(&at.field("labels"), &endpoint.labels);
    check_ports(at, endpoint, Some(ports));
}

fn check_dynamic(at: &FieldContext<'_>, meta: &Meta, entry: &ServiceEntry) {
    at.each("hosts", &entry.hosts, |at, host| {
        if !host.starts_with('*') {
            at.error(format!(
                "{host:?} is one host; DYNAMIC_DNS is for domains such as *.example.com, use DNS instead"
            ));
        }
    });
    at.reject_if(
        "addresses",
        !entry.addresses.is_empty(),
        "DYNAMIC_DNS looks hosts up as they are asked for; remove addresses",
    );
    at.reject_if(
        "endpoints",
        !entry.endpoints.is_empty(),
        "DYNAMIC_DNS looks hosts up as they are asked for; remove endpoints",
    );
    at.each("ports", &entry.ports, |at, port| {
        let known = ["http", "http2", "grpc", "tls"].contains(&port.protocol.to_ascii_lowercase().as_str());
        at.reject_if("protocol", !known, "DYNAMIC_DNS needs to see the host; use HTTP, HTTP2, GRPC or TLS");
    });
    let waypoint =
        meta.labels.get("istio.io/use-waypoint").is_some_and(|v| !v.is_empty() && !v.eq_ignore_ascii_case("none"));
    let inside = entry.location == ServiceEntryLocation::MeshInternal && waypoint;
    at.reject_if("location", inside, "MESH_INTERNAL with DYNAMIC_DNS does not work with a waypoint; use MESH_EXTERNAL");
}

#[cfg(test)]
mod tests;

//! WorkloadEntry, and inline endpoints of ServiceEntries.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::label::{check_labels, label_fault};
use super::network::{UNIX, is_ip, socket_fault};
use crate::kinds::workload_entry::WorkloadEntry;
use crate::mesh::dns_name::name_fault;

pub(super) fn check(at: &FieldContext<'_>, entry: &WorkloadEntry) {
    check_static(at, entry, &Owner::Unknown);
}

/// The service that an entry belongs to.
pub(super) enum Owner<'a> {
    /// It may have any resolution and any ports.
    Unknown,
    /// Its endpoints have IP addresses; these are the names of its ports.
    Static(BTreeSet<&'a str>),
}

pub(super) fn check_static(at: &FieldContext<'_>, entry: &WorkloadEntry, owner: &Owner<'_>) {
    let address = entry.address.as_str();
    if address.is_empty() {
        if entry.network.is_empty() {
            return at.field("address").error("it is missing; write an IP address, a host name or unix:// and a path");
        }
        at.field("address")
            .warn("it is missing, so that the endpoint is reached through the gateway of its network only");
    } else if let Some(path) = address.strip_prefix(UNIX) {
        check_socket(at, path, entry, owner);
    } else if !is_ip(address) {
        let fault = match owner {
            Owner::Static(_) => {
                Some(format!("{address:?} is not an IP address, as resolution STATIC needs; use one, or DNS"))
            }
            Owner::Unknown => {
                name_fault(address).map(|_| format!("{address:?} is neither an IP address nor a host name"))
            }
        };
        at.reject("address", fault);
    }
    check_ports(
        at,
        entry,
        match owner {
            Owner::Static(ports) => Some(ports),
            Owner::Unknown => None,
        },
    );
    check_labels(&at.field("labels"), &entry.labels);
}

fn check_socket(at: &FieldContext<'_>, path: &str, entry: &WorkloadEntry, owner: &Owner<'_>) {
    at.reject("address", socket_fault(path));
    at.reject_if("ports", !entry.ports.is_empty(), "a Unix socket has no ports; remove them");
    if let Owner::Static(ports) = owner
        && ports.len() != 1
    {
        at.field("address").error(format!("a Unix socket serves one port, but the service has {}", ports.len()));
    }
}

/// `known`: the ports of the service. `None`: unknown.
pub(super) fn check_ports(at: &FieldContext<'_>, entry: &WorkloadEntry, known: Option<&BTreeSet<&str>>) {
    let at = at.field("ports");
    for (name, &port) in &entry.ports {
        if known.is_some_and(|known| !known.contains(name.as_str())) {
            at.field(name).error(format!("the service has no port {name:?}; use a name from spec.ports"));
        }
        at.reject(name, label_fault(name));
        at.check_port(name, port);
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn addresses_ports_and_labels() {
        let table = Table { kind: "WorkloadEntry", valid: "{address: vm.example.com, ports: {http: 80}}" };
        check(
            &table,
            "{serviceAccount: a}",
            &["error spec.address: it is missing; write an IP address, a host name or unix:// and a path"],
        );
        check(
            &table,
            "{network: n}",
            &[
                "warning spec.address: it is missing, so that the endpoint is reached through the gateway of its network only",
            ],
        );
        check(
            &table,
            "{address: 'unix://a', ports: {a_b: 0}, labels: {a: '!'}}",
            &[
                "error spec.address: \"a\" is not the path of a socket; write unix:///path/to/file or unix://@name",
                "error spec.ports: a Unix socket has no ports; remove them",
                "error spec.ports.a_b: \"a_b\" cannot be a name here; use up to 63 letters, digits and inner hyphens",
                "error spec.ports.a_b: 0 is not a port; use 1 to 65535",
                "error spec.labels.a: \"!\" cannot be the value of a label; use one of letters, digits, -, _ and ., with a letter or digit at both ends",
            ],
        );
        check(&table, "{address: a_b}", &["error spec.address: \"a_b\" is neither an IP address nor a host name"]);
    }
}

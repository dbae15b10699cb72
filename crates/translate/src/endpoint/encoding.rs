//! Encodes load assignments back to front, without building messages. There are as many endpoints as pods times ports: a message for each,
//! with nested maps in its metadata, costs ten times as much. Field numbers are those of Envoy's messages.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use model::{Endpoint, EndpointAddress, Health, NetworkGateway, Origin, Workload};
use protobuf::{Encode, Writer};
use wire::envoy::config::core::v3::HealthStatus;

use super::EndpointSelection;
use crate::locality::{Group, Member, Target};

/// `ClusterLoadAssignment`
pub(super) struct AssignmentMessage<'a> {
    pub(super) name: &'a str,
    pub(super) selection: EndpointSelection<'a>,
    pub(super) groups: &'a [Group<'a>],
}

impl AssignmentMessage<'_> {
    pub(super) fn bytes(&self) -> Bytes {
        protobuf::encode(self)
    }
}

impl Encode for AssignmentMessage<'_> {
    fn write(&self, out: &mut Writer) {
        for group in self.groups.iter().rev() {
            out.nested(2, |out| locality(self.selection, group, out));
        }
        out.text(1, self.name);
    }
}

/// `LocalityLbEndpoints`
fn locality(selection: EndpointSelection<'_>, group: &Group<'_>, out: &mut Writer) {
    if group.priority > 0 {
        out.number(5, group.priority.into());
    }
    if group.weight > 0 {
        weight(3, group.weight, out);
    }
    for member in group.members.iter().rev() {
        out.nested(2, |out| lb_endpoint(selection, member, out));
    }
    out.nested(1, |out| {
        out.text(3, &group.locality.subzone);
        out.text(2, &group.locality.zone);
        out.text(1, &group.locality.region);
    });
}

/// `LbEndpoint`
fn lb_endpoint(selection: EndpointSelection<'_>, member: &Member<'_>, out: &mut Writer) {
    weight(4, member.weight, out);
    match member.target {
        Target::Endpoint(endpoint) => {
            out.nested(3, |out| metadata(endpoint, selection, out));
            match health(endpoint) {
                HealthStatus::Unknown => {}
                status => out.number(2, status as u64),
            }
            out.nested(1, |out| out.nested(1, |out| address(&endpoint.address, endpoint.port, out)));
        }
        Target::Gateway(gateway) => {
            out.nested(3, |out| gateway_metadata(gateway, out));
            let port = gateway.port.unwrap_or_default();
            out.nested(1, |out| out.nested(1, |out| socket(&gateway.address.to_string(), port, out)));
        }
    }
}

/// `UInt32Value`
fn weight(number: u32, weight: u32, out: &mut Writer) {
    out.nested(number, |out| {
        if weight > 0 {
            out.number(1, weight.into());
        }
    });
}

fn health(endpoint: &Endpoint) -> HealthStatus {
    match (endpoint.origin, endpoint.health) {
        (_, Health::Draining) => HealthStatus::Draining,
        (Origin::Entry, _) => HealthStatus::Unknown,
        (Origin::Kubernetes, Health::Ready) => HealthStatus::Healthy,
        (Origin::Kubernetes, _) => HealthStatus::Unhealthy,
    }
}

/// `Address`
fn address(address: &EndpointAddress, port: u16, out: &mut Writer) {
    match address {
        EndpointAddress::Ip(IpAddr::V4(ip)) => out.nested(1, |out| {
            out.number(3, port.into());
            out.nested(2, |out| write_ipv4(*ip, out));
        }),
        EndpointAddress::Ip(IpAddr::V6(ip)) => socket(&ip.to_string(), port, out),
        EndpointAddress::Name(name) => socket(name, port, out),
        EndpointAddress::Pipe(path) => out.nested(2, |out| out.text(1, path)),
        // Unreachable: such an endpoint is reached through a network gateway.
        EndpointAddress::Unknown => socket("", port, out),
    }
}

fn socket(host: &str, port: u16, out: &mut Writer) {
    out.nested(1, |out| {
        out.number(3, port.into());
        out.text(2, host);
    });
}

/// Hand-written, since formatting an address takes longer than the rest of its endpoint.
fn write_ipv4(ip: Ipv4Addr, out: &mut Writer) {
    for (index, mut octet) in ip.octets().into_iter().enumerate().rev() {
        loop {
            out.put(&[b'0' + octet % 10]);
            octet /= 10;
            if octet == 0 {
                break;
            }
        }
        if index > 0 {
            out.put(b".");
        }
    }
}

/// `Metadata`
fn metadata(endpoint: &Endpoint, selection: EndpointSelection<'_>, out: &mut Writer) {
    let cluster = &selection.mesh.env.cluster_id;
    section("istio", "workload", out, |out| workload(&endpoint.workload, cluster, out));
    if let Some(label) = selection.tls_label(endpoint) {
        write_tls_label(label, out);
    }
}

fn gateway_metadata(gateway: &NetworkGateway, out: &mut Writer) {
    section("istio", "workload", out, |out| {
        out.put(gateway.cluster.as_bytes());
        out.put(b";;;;");
    });
    write_tls_label("istio", out);
}

fn write_tls_label(label: &str, out: &mut Writer) {
    section("envoy.transport_socket_match", "tlsMode", out, |out| out.put(label.as_bytes()));
}

/// `filter_metadata` with one text field.
fn section(name: &str, field: &str, out: &mut Writer, text: impl FnOnce(&mut Writer)) {
    out.nested(1, |out| {
        out.nested(2, |out| {
            out.nested(1, |out| {
                out.nested(2, |out| out.nested(3, text));
                out.text(1, field);
            });
        });
        out.text(1, name);
    });
}

/// `workload;namespace;canonical name;canonical revision;cluster`, the revision empty if it is the default.
fn workload(workload: &Workload, cluster: &str, out: &mut Writer) {
    let revision = Some(workload.canonical_revision()).filter(|revision| *revision != "latest").unwrap_or_default();
    out.put(cluster.as_bytes());
    for part in [revision, workload.canonical_name(), &workload.namespace, &workload.name] {
        out.put(b";");
        out.put(part.as_bytes());
    }
}

//! The bytes of load assignments, from the last to the first. There are as many endpoints as pods times ports: a message for each, with a
//! map in a map in it, costs ten times what it says. Numbers are those of Envoy's fields.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use model::{Address, Endpoint, Health, NetworkGateway, Origin, Workload};
use wire::backward::{self, Backward, Writer};
use wire::envoy::config::core::v3::HealthStatus;

use super::Chosen;
use crate::locality::{Group, Member, Via};

/// `ClusterLoadAssignment`
pub(super) struct Assignment<'a> {
    pub(super) name: &'a str,
    pub(super) chosen: Chosen<'a>,
    pub(super) groups: &'a [Group<'a>],
}

impl Assignment<'_> {
    pub(super) fn bytes(&self) -> Bytes {
        backward::encode(self)
    }
}

impl Backward for Assignment<'_> {
    fn write(&self, out: &mut Writer) {
        for group in self.groups.iter().rev() {
            out.nested(2, |out| locality(self.chosen, group, out));
        }
        out.text(1, self.name);
    }
}

/// `LocalityLbEndpoints`
fn locality(chosen: Chosen<'_>, group: &Group<'_>, out: &mut Writer) {
    if group.priority > 0 {
        out.number(5, group.priority.into());
    }
    if group.weight > 0 {
        weight(3, group.weight, out);
    }
    for member in group.members.iter().rev() {
        out.nested(2, |out| lb_endpoint(chosen, member, out));
    }
    out.nested(1, |out| {
        out.text(3, &group.place.subzone);
        out.text(2, &group.place.zone);
        out.text(1, &group.place.region);
    });
}

/// `LbEndpoint`
fn lb_endpoint(chosen: Chosen<'_>, member: &Member<'_>, out: &mut Writer) {
    weight(4, member.weight, out);
    match member.via {
        Via::Itself(endpoint) => {
            out.nested(3, |out| metadata(endpoint, chosen, out));
            match health(endpoint) {
                HealthStatus::Unknown => {}
                status => out.number(2, status as u64),
            }
            out.nested(1, |out| out.nested(1, |out| address(&endpoint.address, endpoint.port, out)));
        }
        Via::Gateway(gateway) => {
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
fn address(address: &Address, port: u16, out: &mut Writer) {
    match address {
        Address::Ip(IpAddr::V4(ip)) => out.nested(1, |out| {
            out.number(3, port.into());
            out.nested(2, |out| dotted(*ip, out));
        }),
        Address::Ip(IpAddr::V6(ip)) => socket(&ip.to_string(), port, out),
        Address::Name(name) => socket(name, port, out),
        Address::Pipe(path) => out.nested(2, |out| out.text(1, path)),
        // A gateway stands in its place.
        Address::Unknown => socket("", port, out),
    }
}

fn socket(host: &str, port: u16, out: &mut Writer) {
    out.nested(1, |out| {
        out.number(3, port.into());
        out.text(2, host);
    });
}

/// To format one takes longer than all the rest of its endpoint.
fn dotted(ip: Ipv4Addr, out: &mut Writer) {
    for (place, mut octet) in ip.octets().into_iter().enumerate().rev() {
        loop {
            out.put(&[b'0' + octet % 10]);
            octet /= 10;
            if octet == 0 {
                break;
            }
        }
        if place > 0 {
            out.put(b".");
        }
    }
}

/// `Metadata`
fn metadata(endpoint: &Endpoint, chosen: Chosen<'_>, out: &mut Writer) {
    let cluster = &chosen.mesh.env.cluster_id;
    section("istio", "workload", out, |out| workload(&endpoint.workload, cluster, out));
    if chosen.takes_mtls(endpoint) {
        takes_mtls(out);
    }
}

fn gateway_metadata(gateway: &NetworkGateway, out: &mut Writer) {
    section("istio", "workload", out, |out| {
        out.put(gateway.cluster.as_bytes());
        out.put(b";;;;");
    });
    takes_mtls(out);
}

fn takes_mtls(out: &mut Writer) {
    section("envoy.transport_socket_match", "tlsMode", out, |out| out.put(b"istio"));
}

/// `filter_metadata` with one text in it.
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

/// `workload;namespace;canonical name;canonical revision;cluster`, the revision empty when it is the default.
fn workload(workload: &Workload, cluster: &str, out: &mut Writer) {
    let revision = Some(workload.canonical_revision()).filter(|revision| *revision != "latest").unwrap_or_default();
    out.put(cluster.as_bytes());
    for part in [revision, workload.canonical_name(), &workload.namespace, &workload.name] {
        out.put(b";");
        out.put(part.as_bytes());
    }
}

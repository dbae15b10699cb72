//! Services: selectors that match no pod, names of ports that are nearly a protocol, ports of one pod that two Services declare differently.

use std::collections::{BTreeMap, BTreeSet};

use config::kind::Kind;
use config::kinds::service::{ServicePort, ServiceSpec, ServiceType};
use config::kinds::transport::Transport;
use config::meta::Object;
use config::similar::most_similar;

use super::{Diagnostics, ReferenceIndex, display};
use crate::mesh::Mesh;
use crate::protocol::Protocol;
use crate::service::{Service, TargetPort};

/// As `Protocol::named` knows them.
const PROTOCOLS: [&str; 11] =
    ["http", "http2", "grpc", "grpc-web", "https", "tls", "tcp", "mongo", "mysql", "redis", "udp"];

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    for object in mesh.objects.services.values() {
        check_selector(mesh, object, references, diagnostics);
        for (index, port) in object.spec.ports.iter().enumerate() {
            check_port_name(object, index, port, diagnostics);
        }
    }
    check_shared_ports(mesh, references, diagnostics);
}

fn check_selector(
    mesh: &Mesh,
    object: &Object<ServiceSpec>,
    references: &ReferenceIndex<'_>,
    diagnostics: &mut Diagnostics,
) {
    let ServiceSpec { kind, selector, .. } = &object.spec;
    if selector.is_empty() || *kind == ServiceType::ExternalName {
        return;
    }
    // A folder without workloads does not show which ones exist.
    let Some(workloads) = references.workloads.get(&*object.meta.namespace) else { return };
    let has_endpoints = references.service_of(&object.meta).is_some_and(|service| has_endpoints(mesh, service));
    if !has_endpoints && !workloads.iter().any(|labels| labels.contains_all(selector)) {
        let what = format!(
            "no workload of namespace {} has these labels ({}), so that requests fail with 503",
            object.meta.namespace,
            display(selector)
        );
        diagnostics.warn(Kind::Service, &object.meta, "spec.selector", what);
    }
}

fn has_endpoints(mesh: &Mesh, service: &Service) -> bool {
    service.ports.iter().any(|port| !mesh.endpoints_at(service, port.number).is_empty())
}

fn check_port_name(object: &Object<ServiceSpec>, index: usize, port: &ServicePort, diagnostics: &mut Diagnostics) {
    let ServicePort { name, app_protocol, protocol, .. } = port;
    if app_protocol.is_some() || *protocol != Transport::Tcp {
        return;
    }
    let field = format!("spec.ports[{index}].name");
    let prefix = name.split('-').next().unwrap_or_default();
    let declared = Protocol::named(prefix).is_some() || name.starts_with("grpc-web");
    if object.spec.kind == ServiceType::ExternalName && (!declared || name == "tcp") {
        let what = "the protocol of an ExternalName Service cannot be detected, and plain TCP catches other traffic of the port; begin the name with the protocol, such as http- or tls-";
        diagnostics.warn(Kind::Service, &object.meta, field, what);
        return;
    }
    if declared {
        return;
    }
    if let Some(meant) = nearly(prefix) {
        let what = format!(
            "{name:?} declares no protocol, and it is detected for each connection; did you mean {meant}, or a name that begins with {meant}-?"
        );
        diagnostics.warn(Kind::Service, &object.meta, field, what);
    }
}

/// The protocol that was meant: misspelt, or without the dash after it.
fn nearly(prefix: &str) -> Option<&'static str> {
    let run_together = ["https", "http2", "http", "grpc"].into_iter().find(|known| prefix.starts_with(known));
    run_together.or_else(|| if prefix.len() < 3 { None } else { most_similar(prefix, &PROTOCOLS) })
}

/// A pod serves one protocol on a port, whatever Services lead to it.
fn check_shared_ports(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    let mut reported = BTreeSet::new();
    for pod in mesh.objects.pods.values() {
        let mut first: BTreeMap<u16, (&str, Protocol)> = BTreeMap::new();
        for object in references.selecting(&pod.meta.namespace, &pod.meta.labels) {
            let Some(service) = references.service_of(&object.meta) else { continue };
            for (index, port) in service.ports.iter().enumerate() {
                let number = match &port.target {
                    TargetPort::Same => port.number,
                    TargetPort::Number(number) => *number,
                    TargetPort::Name(_) => continue,
                };
                let (other, protocol) = *first.entry(number).or_insert((&object.meta.name, port.protocol));
                if protocol != port.protocol && reported.insert((&object.meta.namespace, &object.meta.name, index)) {
                    let what = format!(
                        "Service {other} leads to the same port {number} of pod {} with another protocol; the pod has one listener for both, so declare the same",
                        pod.meta.name
                    );
                    diagnostics.warn(Kind::Service, &object.meta, format!("spec.ports[{index}]"), what);
                }
            }
        }
    }
}

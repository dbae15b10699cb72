//! Sidecar: ingress and egress listeners. Whether its selectors and hosts match anything is checked in `model`.

use std::collections::{BTreeMap, BTreeSet};

use super::field_context::FieldContext;
use super::label::{check_workload_selector, label_fault};
use super::network::{Family, UNIX, bind_fault, port_fault, protocol_fault, socket_fault};
use super::server_tls::check_server_tls;
use super::traffic_policy::check_pool;
use super::virtual_service::check_destination;
use crate::kinds::gateway::{ServerTlsMode, ServerTlsSettings};
use crate::kinds::port::IstioPort;
use crate::kinds::sidecar::{
    CaptureMode, IstioEgressListener, IstioIngressListener, OutboundTrafficMode, OutboundTrafficPolicy, Sidecar,
};
use crate::mesh::dns_name::{is_label, name_fault, wildcard_name_fault};
use crate::meta::Meta;

pub(super) fn check(at: &FieldContext<'_>, meta: &Meta, sidecar: &Sidecar) {
    check_workload_selector(at, sidecar.workload_selector.as_ref());
    let Sidecar { workload_selector: _, ingress, egress, inbound_connection_pool, outbound_traffic_policy } = sidecar;
    if ingress.is_empty() && egress.is_empty() && inbound_connection_pool.is_none() && outbound_traffic_policy.is_none()
    {
        return at
            .error("there is nothing in it; write egress, ingress, outboundTrafficPolicy or inboundConnectionPool");
    }
    let mut ports = BTreeSet::new();
    at.each("ingress", ingress, |at, listener| check_ingress(at, listener, &mut ports));
    at.if_set("inboundConnectionPool", inbound_connection_pool.as_ref(), check_pool);
    check_egress_ports(at, egress);
    at.each("egress", egress, |at, listener| check_hosts(at, meta, &listener.hosts));
    at.if_set("outboundTrafficPolicy", outbound_traffic_policy.as_ref(), check_outbound);
}

fn check_ingress(at: &FieldContext<'_>, listener: &IstioIngressListener, ports: &mut BTreeSet<u32>) {
    let Some(port) = &listener.port else {
        return at.field("port").error("it is missing; an ingress listener needs a port");
    };
    check_port(&at.field("port"), port);
    at.field("port").check_port("number", port.number);
    at.unfit_field("bind", bind_fault(&listener.bind));
    at.field("port").reject_if(
        "number",
        !ports.insert(port.number),
        "another ingress listener has this port; remove one",
    );
    if !listener.default_endpoint.is_empty() {
        at.unfit_field("defaultEndpoint", endpoint_fault(&listener.default_endpoint));
    }
    at.if_set("tls", listener.tls.as_ref(), |at, tls| check_ingress_tls(at, tls, port));
    at.if_set("connectionPool", listener.connection_pool.as_ref(), |at, pool| {
        check_pool(at, pool);
        if pool.http.is_some() && Family::of(&port.protocol) != Some(Family::Http) {
            at.field("http")
                .warn(format!("port {} does not speak HTTP, so that only tcp holds; remove http", port.number));
        }
    });
}

fn check_port(at: &FieldContext<'_>, port: &IstioPort) {
    at.reject_if("targetPort", port.target_port > 0, "without effect in a Sidecar; use defaultEndpoint, or remove it");
    if !port.name.is_empty() {
        at.reject("name", label_fault(&port.name));
    }
    at.reject("protocol", protocol_fault(&port.protocol));
}

/// `unix://path`, `:port`, or a port of one of the host's own addresses.
fn endpoint_fault(endpoint: &str) -> Option<String> {
    if let Some(path) = endpoint.strip_prefix(UNIX) {
        return socket_fault(path);
    }
    let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
    let own = ["", "127.0.0.1", "0.0.0.0", "[::1]", "[::]"].contains(&host);
    let good = own && port.parse::<u32>().is_ok_and(|port| port_fault(port).is_none());
    (!good).then(|| {
        format!("{endpoint:?} is not an endpoint of this host; write 127.0.0.1:PORT, [::1]:PORT or unix://PATH")
    })
}

fn check_ingress_tls(at: &FieldContext<'_>, tls: &ServerTlsSettings, port: &IstioPort) {
    let what = "not supported in a Sidecar; remove it";
    at.reject_if("subjectAltNames", !tls.subject_alt_names.is_empty(), what);
    at.reject_if("httpsRedirect", tls.https_redirect, what);
    at.reject_if("credentialName", !tls.credential_name.is_empty(), "not supported in a Sidecar; use files");
    at.reject_if("credentialNames", !tls.credential_names.is_empty(), "not supported in a Sidecar; use files");
    at.reject_if(
        "tlsCertificates",
        !tls.tls_certificates.is_empty(),
        "not supported in a Sidecar; use serverCertificate",
    );
    let mode = matches!(tls.mode, ServerTlsMode::IstioMutual | ServerTlsMode::AutoPassthrough);
    at.reject_if("mode", mode, "not supported in a Sidecar; use SIMPLE or MUTUAL");
    if Family::of(&port.protocol) != Some(Family::Tls) {
        at.error("the port does not speak TLS; set its protocol to HTTPS or TLS, or remove tls");
    }
    check_server_tls(at, tls);
}

/// One listener may have no port, and must be last: it is the catch-all.
fn check_egress_ports(at: &FieldContext<'_>, egress: &[IstioEgressListener]) {
    let (mut ports, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    at.each("egress", egress.iter().enumerate(), |at, (index, listener)| {
        let Some(port) = &listener.port else {
            if index + 1 < egress.len() {
                at.field("port").error("it is missing; only the last egress listener may have no port");
            }
            return;
        };
        check_port(&at.field("port"), port);
        if port.number == 0 {
            check_egress_socket(at, listener);
            at.reject_if(
                "bind",
                !sockets.insert(&listener.bind),
                "another egress listener has this socket; remove one",
            );
        } else {
            at.field("port").check_port("number", port.number);
            at.unfit_field("bind", bind_fault(&listener.bind));
            let again = !ports.insert(port.number);
            at.field("port").reject_if("number", again, "another egress listener has this port; remove one");
        }
    });
}

fn check_egress_socket(at: &FieldContext<'_>, listener: &IstioEgressListener) {
    match listener.bind.strip_prefix(UNIX) {
        Some(path) => at.reject("bind", socket_fault(path)),
        None => at
            .field("port")
            .field("number")
            .error("it is missing; only a listener on a socket (bind: unix://PATH) has no number"),
    }
    let captured = listener.capture_mode == CaptureMode::Iptables;
    at.reject_if("captureMode", captured, "connections to a socket are not captured; use DEFAULT or NONE");
}

fn check_hosts(at: &FieldContext<'_>, meta: &Meta, hosts: &[String]) {
    at.reject_if("hosts", hosts.is_empty(), "name at least one host, such as ./*");
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    at.each("hosts", hosts, |at, host| {
        let Some((namespace, name)) = host.split_once('/') else {
            return at.error(format!(
                "{host:?} has no namespace; write namespace/host, such as ./* or */cart.shop.svc.cluster.local"
            ));
        };
        check_host(at, namespace, name);
        let namespace = if namespace == "." { &*meta.namespace } else { namespace };
        let earlier = seen.entry(namespace).or_default();
        if if name == "*" { !earlier.is_empty() } else { earlier.contains(name) || earlier.contains("*") } {
            at.warn(format!("{host:?} is listed already, or stands for hosts that are; remove one"));
        }
        earlier.insert(name);
    });
    if seen.len() > 1 && seen.get("*").is_some_and(|names| names.contains("*")) {
        at.field("hosts").warn("*/* is every host already; remove it or the others");
    }
}

fn check_host(at: &FieldContext<'_>, namespace: &str, name: &str) {
    if !matches!(namespace, "*" | "." | "~") && !is_label(namespace) {
        at.error(format!("{namespace:?} is not a namespace; write a name, ., * or ~"));
    }
    if name != "*" && !name.contains('.') {
        at.error(format!("{name:?} is a short name; write the host in full, such as {name}.shop.svc.cluster.local"));
    }
    at.reject_here(wildcard_name_fault(name));
    if name.contains('*') && name.len() != 1 && !name.starts_with("*.") {
        at.error(format!("{name:?} has a * for a part of a name; write *.example.com"));
    }
}

fn check_outbound(at: &FieldContext<'_>, policy: &OutboundTrafficPolicy) {
    at.if_set("egressProxy", policy.egress_proxy.as_ref(), |at, proxy| {
        if policy.mode != OutboundTrafficMode::AllowAny {
            return at.error("unknown traffic is sent on only with mode ALLOW_ANY; set that, or remove egressProxy");
        }
        at.reject("host", name_fault(&proxy.host));
        match proxy.port {
            Some(_) => check_destination(at, proxy),
            None => at.field("port").error("it is missing; write port: {number: ..}"),
        }
    });
}

#[cfg(test)]
mod tests;

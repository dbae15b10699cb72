//! Gateway: servers, their ports, hosts and TLS.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::label::label_fault;
use super::network::{Family, UNIX, bind_fault, declared_protocol_fault, is_ip, socket_fault};
use super::server_tls::check_server_tls;
use crate::kinds::gateway::{Gateway, ServerSpec, ServerTlsMode, ServerTlsSettings};
use crate::kinds::port::IstioPort;
use crate::mesh::dns_name::{is_label, wildcard_name_fault};
use crate::meta::Meta;

pub(super) fn check(at: &FieldContext<'_>, meta: &Meta, gateway: &Gateway) {
    if let Some(fault) = label_fault(&meta.name) {
        at.error(format!("metadata.name: {fault}"));
    }
    at.reject_if("servers", gateway.servers.is_empty(), "a gateway needs at least one server");
    let mut names = BTreeSet::new();
    at.each("servers", &gateway.servers, |at, server| {
        check_server(at, server);
        if let Some(port) = &server.port {
            let again = !names.insert(port.name.as_str());
            at.field("port").reject_if("name", again, "the port of another server has this name; rename one");
            let redirects = server.tls.as_ref().is_some_and(|tls| tls.https_redirect);
            if redirects && Family::of(&port.protocol) != Some(Family::Http) {
                at.field("tls")
                    .field("httpsRedirect")
                    .warn("only plain HTTP is redirected; move it to the HTTP server");
            }
        }
    });
}

fn check_server(at: &FieldContext<'_>, server: &ServerSpec) {
    at.reject_if("hosts", server.hosts.is_empty(), "name at least one host, such as *");
    at.each("hosts", &server.hosts, |at, host| check_host(at, host));
    at.if_set("tls", server.tls.as_ref(), check_server_tls);
    let Some(port) = &server.port else {
        return at.field("port").error("it is missing; a server needs a port");
    };
    check_port(at, port, &server.bind);
    if port.number > 65535 || declared_protocol_fault(&port.protocol).is_some() {
        return;
    }
    match (Family::of(&port.protocol), &server.tls) {
        (Some(Family::Tls), None) => at.field("tls").error("it is missing; a port for HTTPS or TLS needs it"),
        (Some(Family::Http), Some(tls)) if !only_redirects(tls) => {
            at.field("tls").error("the port speaks plain HTTP; set its protocol to HTTPS, or keep only httpsRedirect");
        }
        (Some(Family::Tcp | Family::Udp), Some(_)) => {
            at.field("tls").error("the port does not speak TLS; set its protocol to TLS or HTTPS, or remove tls");
        }
        _ => {}
    }
}

/// A plaintext server may only have a redirect in `tls`.
fn only_redirects(tls: &ServerTlsSettings) -> bool {
    let files = [&tls.ca_certificates, &tls.private_key, &tls.server_certificate];
    matches!(tls.mode, ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough)
        && files.iter().all(|file| file.is_empty())
}

fn check_port(at: &FieldContext<'_>, port: &IstioPort, bind: &str) {
    let socket = bind.strip_prefix(UNIX);
    let port_at = at.field("port");
    port_at.reject("protocol", declared_protocol_fault(&port.protocol));
    if port.number > 0 || socket.is_none() {
        port_at.check_port("number", port.number);
    }
    port_at.reject_if("targetPort", port.target_port > 0, "without effect in a Gateway; remove it");
    port_at.reject_if("name", port.name.is_empty(), "it is missing; name the port");
    match socket {
        Some(path) => {
            at.reject("bind", socket_fault(path));
            port_at.reject_if(
                "number",
                port.number != 0,
                "a socket has no port; remove the number, or bind to an address",
            );
        }
        None => at.unfit_field("bind", bind_fault(bind)),
    }
}

/// `[namespace/]host`.
fn check_host(at: &FieldContext<'_>, host: &str) {
    let name = match host.split_once('/') {
        None => host,
        Some((namespace, name)) => {
            if !matches!(namespace, "*" | ".") && !is_label(namespace) {
                at.error(format!("{namespace:?} is not a namespace; write a name, . or *"));
            }
            name
        }
    };
    if name != "*" && !name.contains('.') {
        at.error(format!("{name:?} is a short name; write the host in full"));
    }
    if !is_ip(name) {
        at.reject_here(wildcard_name_fault(name));
    }
    if name.contains('*') && name.len() != 1 && !name.starts_with("*.") {
        at.error(format!("{name:?} has a * for a part of a name; write *.example.com"));
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    const TABLE: Table =
        Table { kind: "Gateway", valid: "{servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}" };

    fn server(parts: &str, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|line| line.replace('^', "spec.servers[0]")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(&TABLE, &format!("{{servers: [{{{parts}}}]}}"), &expected);
    }

    #[test]
    fn ports() {
        check(&TABLE, "{}", &["error spec.servers: a gateway needs at least one server"]);
        server("hosts: ['*']", &["error ^.port: it is missing; a server needs a port"]);
        server(
            "hosts: ['*'], bind: a, port: {number: 70000, protocol: x, targetPort: 1}",
            &[
                "error ^.port.protocol: \"x\" is not a protocol; known are HTTP, HTTP2, HTTP_PROXY, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, REDIS, MYSQL, UDP",
                "unfit ^.port.number: 70000 is not a port; use 1 to 65535",
                "error ^.port.targetPort: without effect in a Gateway; remove it",
                "error ^.port.name: it is missing; name the port",
                "unfit ^.bind: \"a\" is not an IP address; write it like 10.0.0.1 or fd00::1",
            ],
        );
    }

    #[test]
    fn hosts() {
        server(
            "port: {number: 80, name: http, protocol: HTTP}, hosts: [a, a_b/x.com, './*x.com']",
            &[
                "error ^.hosts[0]: \"a\" is a short name; write the host in full",
                "error ^.hosts[1]: \"a_b\" is not a namespace; write a name, . or *",
                "error ^.hosts[2]: \"*x.com\" has a * for a part of a name; write *.example.com",
            ],
        );
    }

    #[test]
    fn tls() {
        let https = |tls: &str, expected: &[&str]| {
            server(
                &format!("hosts: ['*'], port: {{number: 443, name: https, protocol: HTTPS}}, tls: {{{tls}}}"),
                expected,
            );
        };
        server(
            "hosts: ['*'], port: {number: 443, name: https, protocol: HTTPS}",
            &["error ^.tls: it is missing; a port for HTTPS or TLS needs it"],
        );
        https(
            "mode: MUTUAL",
            &[
                "error ^.tls.caCertificates: clients are verified; name the file with their CA",
                "error ^.tls.serverCertificate: it is missing; name the file, or use credentialName",
                "error ^.tls.privateKey: it is missing; name the file, or use credentialName",
            ],
        );
        https(
            "mode: ISTIO_MUTUAL, credentialName: a",
            &["error ^.tls.credentialName: mode ISTIO_MUTUAL uses the certificates of the mesh; remove this"],
        );
        https(
            "mode: PASSTHROUGH, credentialName: a",
            &[
                "warning ^.tls: TLS is passed on as it comes, so that no certificate is used; remove them, or set another mode",
            ],
        );
        https(
            "mode: SIMPLE, credentialName: a, minProtocolVersion: TLSV1_1",
            &[
                "warning ^.tls.minProtocolVersion: versions before 1.2 need ciphers that are off by default; name some in cipherSuites",
            ],
        );
        https(
            "mode: SIMPLE, credentialName: a, cipherSuites: [AES128-SHA, AES128-SHA]",
            &["warning ^.tls.cipherSuites[1]: \"AES128-SHA\" is listed twice; remove one"],
        );
        https(
            "mode: SIMPLE, serverCertificate: /a, privateKey: /b, caCrl: /c",
            &["error ^.tls.caCrl: mode SIMPLE asks for no client certificates; remove caCrl"],
        );
    }
}

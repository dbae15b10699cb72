//! Sidecars with errors or warnings, with their diagnostics.

use crate::validate::example::{Table, check};

const TABLE: Table = Table { kind: "Sidecar", valid: "egress: [{hosts: [./*, 'istio-system/*']}]" };

#[test]
fn something_is_in_it() {
    check(
        &TABLE,
        "{}",
        &["error spec: there is nothing in it; write egress, ingress, outboundTrafficPolicy or inboundConnectionPool"],
    );
}

#[test]
fn ingress() {
    let ingress = |listener: &str, expected: &[&str]| check(&TABLE, &format!("{{ingress: [{listener}]}}"), expected);
    ingress("{}", &["error spec.ingress[0].port: it is missing; an ingress listener needs a port"]);
    ingress(
        "{port: {number: 1, protocol: HTTP, targetPort: 2}, defaultEndpoint: '10.0.0.1:80', bind: a}",
        &[
            "error spec.ingress[0].port.targetPort: without effect in a Sidecar; use defaultEndpoint, or remove it",
            "unfit spec.ingress[0].bind: \"a\" is not an IP address; write it like 10.0.0.1 or fd00::1",
            "unfit spec.ingress[0].defaultEndpoint: \"10.0.0.1:80\" is not an endpoint of this host; write 127.0.0.1:PORT, [::1]:PORT or unix://PATH",
        ],
    );
    ingress(
        "{port: {number: 1, protocol: HTTP}, tls: {mode: ISTIO_MUTUAL, httpsRedirect: true}}, {port: {number: 1, protocol: TCP}, connectionPool: {http: {}}}",
        &[
            "error spec.ingress[0].tls.httpsRedirect: not supported in a Sidecar; remove it",
            "error spec.ingress[0].tls.mode: not supported in a Sidecar; use SIMPLE or MUTUAL",
            "error spec.ingress[0].tls: the port does not speak TLS; set its protocol to HTTPS or TLS, or remove tls",
            "error spec.ingress[1].port.number: another ingress listener has this port; remove one",
            "warning spec.ingress[1].connectionPool.http: port 1 does not speak HTTP, so that only tcp holds; remove http",
        ],
    );
}

#[test]
fn egress_listeners() {
    check(
        &TABLE,
        "{egress: [{hosts: [./*]}, {hosts: [./*], port: {number: 0, protocol: HTTP}, captureMode: IPTABLES}, {hosts: [], port: {number: 70000}}]}",
        &[
            "error spec.egress[0].port: it is missing; only the last egress listener may have no port",
            "error spec.egress[1].port.number: it is missing; only a listener on a socket (bind: unix://PATH) has no number",
            "error spec.egress[1].captureMode: connections to a socket are not captured; use DEFAULT or NONE",
            "unfit spec.egress[2].port.number: 70000 is not a port; use 1 to 65535",
            "error spec.egress[2].hosts: name at least one host, such as ./*",
        ],
    );
}

#[test]
fn egress_hosts() {
    let hosts =
        |hosts: &str, expected: &[&str]| check(&TABLE, &format!("{{egress: [{{hosts: [{hosts}]}}]}}"), expected);
    hosts(
        "'*'",
        &[
            "error spec.egress[0].hosts[0]: \"*\" has no namespace; write namespace/host, such as ./* or */cart.shop.svc.cluster.local",
        ],
    );
    hosts(
        "./cart",
        &[
            "error spec.egress[0].hosts[0]: \"cart\" is a short name; write the host in full, such as cart.shop.svc.cluster.local",
        ],
    );
    hosts(
        "a_b/x.y, '*/*x.com'",
        &[
            "error spec.egress[0].hosts[0]: \"a_b\" is not a namespace; write a name, ., * or ~",
            "error spec.egress[0].hosts[1]: \"*x.com\" has a * for a part of a name; write *.example.com",
        ],
    );
    hosts(
        "./*, default/a.b, '*/*'",
        &[
            "warning spec.egress[0].hosts[1]: \"default/a.b\" is listed already, or stands for hosts that are; remove one",
            "warning spec.egress[0].hosts: */* is every host already; remove it or the others",
        ],
    );
}

#[test]
fn egress_proxies() {
    let outbound =
        |policy: &str, expected: &[&str]| check(&TABLE, &format!("{{outboundTrafficPolicy: {policy}}}"), expected);
    outbound(
        "{egressProxy: {host: a.b}}",
        &[
            "error spec.outboundTrafficPolicy.egressProxy: unknown traffic is sent on only with mode ALLOW_ANY; set that, or remove egressProxy",
        ],
    );
    outbound(
        "{mode: ALLOW_ANY, egressProxy: {host: a.b}}",
        &["error spec.outboundTrafficPolicy.egressProxy.port: it is missing; write port: {number: ..}"],
    );
}

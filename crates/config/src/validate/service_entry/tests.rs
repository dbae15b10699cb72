//! ServiceEntries with errors or warnings, with their diagnostics.

use crate::validate::example::{Table, check};

const TABLE: Table = Table {
    kind: "ServiceEntry",
    valid: "{hosts: [a.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
};

fn entry(spec: &str, expected: &[&str]) {
    check(
        &TABLE,
        &format!("{{hosts: [a.com], ports: [{{number: 80, name: http, protocol: HTTP}}], {spec}}}"),
        expected,
    );
}

#[test]
fn hosts() {
    check(&TABLE, "{hosts: [], ports: []}", &["error spec.hosts: name at least one host"]);
    check(
        &TABLE,
        "{hosts: ['*', 'a b', '*a.com'], ports: []}",
        &[
            "unfit spec.hosts[0]: * would be every host there is; name hosts, or a domain such as *.example.com",
            "error spec.hosts[1]: \"a b\" is not a host name: \"a b\" must be letters, digits and inner hyphens, 63 at most",
            "warning spec.hosts[2]: \"*a.com\" has a * for a part of a name, which is not matched; write *.example.com",
        ],
    );
    check(
        &TABLE,
        "{hosts: [a.com, b.com], ports: [{number: 1, name: db, protocol: MYSQL}], resolution: STATIC}",
        &[
            "error spec.hosts: traffic to port 1 does not say which host it is for; write one ServiceEntry per host, or resolution NONE",
        ],
    );
}

#[test]
fn ports() {
    check(
        &TABLE,
        "{hosts: [a.com], ports: [{number: 0, name: a, protocol: X}, {number: 0, name: a, targetPort: 70000}]}",
        &[
            "error spec.ports[0].protocol: \"X\" is not a protocol; known are HTTP, HTTP2, HTTP_PROXY, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, REDIS, MYSQL, UDP",
            "error spec.ports[0].number: 0 is not a port; use 1 to 65535",
            "error spec.ports[1].name: another port has this name; rename one",
            "error spec.ports[1].number: another port has this number; remove one",
            "unfit spec.ports[1].targetPort: 70000 is not a port; use 1 to 65535",
            "warning spec.ports[1]: plain TCP is distinguished by address, and none is given or allocated; add addresses",
            "error spec.ports[1].number: 0 is not a port; use 1 to 65535",
        ],
    );
}

#[test]
fn resolutions() {
    entry(
        "resolution: DNS, addresses: [10.0.0.0/8, x]",
        &[
            "error spec.addresses[1]: \"x\" is no address and no range of addresses; write it like 10.0.0.1 or 10.0.0.0/8",
            "error spec.addresses: ranges are for resolution NONE and STATIC only; write single addresses",
        ],
    );
    entry(
        "endpoints: [{address: 1.1.1.1}]",
        &["error spec.endpoints: resolution NONE keeps the address of the caller; remove endpoints"],
    );
    entry(
        "resolution: STATIC, endpoints: [{address: b.com, ports: {x: 1}}]",
        &[
            "error spec.endpoints[0].address: \"b.com\" is not an IP address, as resolution STATIC needs; use one, or DNS",
            "error spec.endpoints[0].ports.x: the service has no port \"x\"; use a name from spec.ports",
        ],
    );
    entry(
        "resolution: DNS_ROUND_ROBIN, endpoints: [{address: b.com}, {address: '!'}]",
        &[
            "error spec.endpoints: DNS_ROUND_ROBIN follows one name; keep one endpoint, or use DNS",
            "error spec.endpoints[1].address: \"!\" is neither an IP address nor a host name",
        ],
    );
    check(
        &TABLE,
        "{hosts: ['*.a.com'], ports: [], resolution: DNS}",
        &["error spec.hosts: \"*.a.com\" cannot be looked up; name a host in full, or add endpoints"],
    );
    entry(
        "resolution: DYNAMIC_DNS, addresses: [1.1.1.1]",
        &[
            "error spec.hosts[0]: \"a.com\" is one host; DYNAMIC_DNS is for domains such as *.example.com, use DNS instead",
            "error spec.addresses: DYNAMIC_DNS looks hosts up as they are asked for; remove addresses",
        ],
    );
}

#[test]
fn selectors_and_export() {
    entry(
        "resolution: STATIC, workloadSelector: {labels: {}}",
        &[
            "warning spec.workloadSelector.labels: no labels are given, so that all workloads of the namespace are selected; name labels, or remove the selector",
        ],
    );
    entry(
        "resolution: STATIC, workloadSelector: {labels: {app: a}}, endpoints: [{address: 1.1.1.1}]",
        &["error spec.endpoints: endpoints are written or selected, not both; remove them or workloadSelector"],
    );
    entry("resolution: DNS, exportTo: ['~', a]", &["error spec.exportTo: ~ is nobody; remove it or the others"]);
}

//! VirtualServices with errors or warnings, with their diagnostics.

use crate::validate::example::{Table, check};

const TABLE: Table =
    Table { kind: "VirtualService", valid: "{hosts: [cart], http: [{route: [{destination: {host: cart}}]}]}" };

fn service(spec: &str, expected: &[&str]) {
    check(&TABLE, spec, expected);
}

/// An HTTP route with a destination and these fields.
fn route(parts: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|line| line.replace("^", "spec.http[0]")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(
        &TABLE,
        &format!("{{hosts: [cart], http: [{{route: [{{destination: {{host: cart}}}}], {parts}}}]}}"),
        &expected,
    );
}

/// An HTTP route with only these fields.
fn bare(parts: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|line| line.replace("^", "spec.http[0]")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&TABLE, &format!("{{hosts: [cart], http: [{{{parts}}}]}}"), &expected);
}

#[test]
fn hosts() {
    let hosts = |hosts: &str, expected: &[&str]| {
        service(&format!("{{hosts: [{hosts}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}"), expected);
    };
    hosts(
        "'*'",
        &["unfit spec.hosts[0]: * would take over every host of the mesh; name the hosts, or gateways other than mesh"],
    );
    hosts("10.0.0.1", &[]);
    hosts(
        "'*.a.com', b.a.com",
        &["error spec.hosts[1]: \"b.a.com\" overlaps with \"*.a.com\" of the same list; remove one of them"],
    );
    hosts("a, A", &[]);
    hosts(
        "a_b",
        &[
            "error spec.hosts[0]: \"a_b\" is not a host name: \"a_b\" must be letters, digits and inner hyphens, 63 at most",
        ],
    );
}

#[test]
fn delegates() {
    service(
        "{gateways: [g], tcp: [{route: [{destination: {host: a}}]}]}",
        &[
            "error spec.gateways: a VirtualService without hosts is for others to delegate HTTP to; give it hosts, or remove gateways",
            "error spec.tcp: a VirtualService without hosts is for others to delegate HTTP to; give it hosts, or remove tcp",
        ],
    );
    service(
        "{http: [{delegate: {name: b}}]}",
        &[
            "error spec.http[0].delegate: a VirtualService without hosts is delegated to and cannot delegate; remove this",
            "unfit spec.http[0]: nothing happens to the request; write route, redirect or directResponse",
        ],
    );
    route("delegate: {name: b}", &["error ^.route: a route that delegates does nothing else; remove this or delegate"]);
}

#[test]
fn gateways() {
    let gateways = |names: &str, expected: &[&str]| {
        service(
            &format!("{{hosts: [a], gateways: [{names}], http: [{{route: [{{destination: {{host: a}}}}]}}]}}"),
            expected,
        );
    };
    gateways(
        "a_b/c",
        &["error spec.gateways[0]: \"a_b/c\" is not the name of a gateway; write name or namespace/name"],
    );
    gateways(
        "mesh, a/b/c",
        &["warning spec.gateways[1]: \"a/b/c\" is not the name of a gateway; write name or namespace/name"],
    );
    gateways(
        "g.ns.svc.cluster.local",
        &["warning spec.gateways[0]: \"g.ns.svc.cluster.local\" is the old way to name a gateway; write ns/g"],
    );
}

#[test]
fn claims_are_for_gateways() {
    route(
        "match: [{headers: {'@request.auth.claims.sub': {exact: a}}}]",
        &[
            "error ^.match[0].headers[\"@request.auth.claims.sub\"]: claims of tokens are known at gateways only; name the gateways, and not mesh, in spec.gateways",
        ],
    );
}

#[test]
fn matches() {
    route(
        "match: [{headers: {'a b': {prefix: ''}}, uri: {regex: '['}, port: 70000, sourceNamespace: a.b, sourceLabels: {'': x}, withoutHeaders: {x: {regex: '*'}}}]",
        &[
            "error ^.match[0].headers[\"a b\"]: \"a b\" is not the name of a header; use letters, digits and -",
            "unfit ^.match[0].headers[\"a b\"].prefix: an empty prefix cannot be compared; remove the condition to match anything",
            "unfit ^.match[0].uri.regex: not a regular expression of RE2: a [ is not closed",
            "unfit ^.match[0].port: 70000 is not a port; use 1 to 65535",
            "error ^.match[0].sourceLabels[\"\"]: \"\" cannot be the key of a label; write name or prefix.example/name, of letters, digits, -, _ and ., with a letter or digit at both ends",
            "error ^.match[0].sourceNamespace: \"a.b\" cannot be a name here; use up to 63 letters, digits and inner hyphens",
        ],
    );
}

#[test]
fn one_thing_happens_to_a_request() {
    bare("name: a", &["unfit ^: nothing happens to the request; write route, redirect or directResponse"]);
    route(
        "redirect: {uri: /a}, directResponse: {status: 200}, fault: {delay: {fixedDelay: 1s}}",
        &[
            "error ^.route: redirect answers the request, so that this has no place; remove one of them",
            "error ^.fault: redirect answers the request, so that this has no place; remove one of them",
            "error ^.directResponse: redirect answers the request, so that this has no place; remove one of them",
        ],
    );
    route(
        "mirror: {host: a}, mirrors: [{destination: {host: b}}]",
        &["error ^.mirror: mirror and mirrors exclude each other; move it into mirrors"],
    );
}

#[test]
fn destinations() {
    bare(
        "route: [{weight: -1}, {destination: {host: '*', subset: a_b, port: {number: 0}}, weight: 1}]",
        &[
            "unfit ^.route[0].destination: it is missing; name the host to send to",
            "unfit ^.route[0].weight: a weight is 0 or more",
            "error ^.route[1].destination.host: * is not a destination; name a host",
            "error ^.route[1].destination.subset: \"a_b\" cannot be a name here; use up to 63 letters, digits and inner hyphens",
            "error ^.route[1].destination.port.number: 0 is not a port; use 1 to 65535",
            "unfit ^.route: all weights are 0, so that no request could be sent; give weight to at least one destination",
        ],
    );
}

#[test]
fn headers() {
    route(
        "headers: {request: {set: {Host: a, ':path': b}, add: {':authority': c}, remove: [host]}, response: {add: {x: '100%'}}}",
        &[
            "unfit ^.headers.request.set[\":path\"]: \":path\" cannot be changed here; to send another host, use rewrite.authority",
            "unfit ^.headers.request.remove[0]: \"host\" cannot be changed here; to send another host, use rewrite.authority",
            "unfit ^.headers.response.add.x: \"100%\" has a % without its partner; write %% for a plain percent sign",
            "error ^.headers.request: the authority is set to \"a\" already; set it once",
        ],
    );
}

#[test]
fn mirrors() {
    route(
        "mirrorPercent: 101, mirrorPercentage: {value: -1}, mirrors: [{}, {destination: {host: a}, percentage: {value: 101}}]",
        &[
            "error ^.mirrorPercent: 101 is not a percentage; use 0 to 100",
            "warning ^.mirrorPercent: mirrorPercent is deprecated; write mirrorPercentage: {value: ..} instead",
            "error ^.mirrorPercentage: -1 is not a percentage; use 0 to 100",
            "unfit ^.mirrors[0].destination: it is missing; name the host to mirror to",
            "error ^.mirrors[1].percentage: 101 is not a percentage; use 0 to 100",
        ],
    );
}

#[test]
fn cors() {
    route(
        "corsPolicy: {allowOrigins: [{exact: ''}, {regex: '('}], allowMethods: [get], allowHeaders: ['a b'], maxAge: 1.5s}",
        &[
            "error ^.corsPolicy.allowOrigins[0]: an origin cannot be empty; write one such as https://example.com",
            "unfit ^.corsPolicy.allowOrigins[1].regex: not a regular expression of RE2: a ( is not closed",
            "error ^.corsPolicy.allowMethods[0]: \"get\" is not a method; use one of GET, HEAD, POST, PUT, PATCH, DELETE, CONNECT, OPTIONS, TRACE, *",
            "error ^.corsPolicy.allowHeaders[0]: \"a b\" is not the name of a header; use letters, digits and -",
            "error ^.corsPolicy.maxAge: 1.500s is too precise; browsers count in whole seconds",
        ],
    );
}

#[test]
fn faults() {
    route("fault: {}", &["error ^.fault: a fault needs abort or delay"]);
    route(
        "fault: {abort: {httpStatus: 100, percentage: {value: 0.00001}}, delay: {exponentialDelay: 1s}}",
        &[
            "error ^.fault.abort.percentage: 0.00001 is too small a percentage; use 0, or 0.0001 or more",
            "unfit ^.fault.abort.httpStatus: 100 is not the status of an answer; use 200 to 599",
            "error ^.fault.delay.exponentialDelay: not supported; use fixedDelay",
        ],
    );
    route(
        "fault: {abort: {grpcStatus: X}}",
        &["error ^.fault.abort.grpcStatus: not a gRPC status; use a name such as NOT_FOUND or UNAVAILABLE"],
    );
    route(
        "fault: {abort: {}}",
        &["warning ^.fault.abort: no error is named, so that nothing is aborted; add httpStatus or grpcStatus"],
    );
}

#[test]
fn redirects_and_answers() {
    bare(
        "redirect: {redirectCode: 200}",
        &[
            "error ^.redirect: a redirect leads somewhere; write uri, authority, scheme, port or derivePort",
            "error ^.redirect.redirectCode: 200 is not the status of a redirect; use 301, 302, 303, 307 or 308",
        ],
    );
    bare(
        "redirect: {scheme: ftp, port: 70000}",
        &[
            "error ^.redirect.scheme: not a scheme; use http or https",
            "unfit ^.redirect.port: 70000 is not a port; use 1 to 65535",
        ],
    );
    bare(
        "directResponse: {status: 99}",
        &["unfit ^.directResponse.status: 99 is not the status of an answer; use 200 to 599"],
    );
    let body = |size: usize| format!("directResponse: {{status: 200, body: {{string: {}}}}}", "a".repeat(size));
    bare(&body(100 * 1024), &[]);
    bare(
        &body(102_401),
        &[
            "warning ^.directResponse.body: the body has 102401 bytes, which every proxy holds; let a server send large answers",
        ],
    );
    bare(
        &body(1_048_577),
        &["unfit ^.directResponse.body: the body has 1048577 bytes; 1 MiB is the most, since every proxy holds it"],
    );
}

#[test]
fn retries() {
    route(
        "retries: {retryOn: 5xx}",
        &["error ^.retries: attempts is 0, which turns retries off; set attempts, or remove the rest"],
    );
    let reasons = "5xx, gateway-error, reset, reset-before-request, connect-failure, retriable-4xx, refused-stream, retriable-status-codes, retriable-headers, envoy-ratelimited, http3-post-connect-failure, cancelled, deadline-exceeded, internal, resource-exhausted, unavailable";
    route(
        "retries: {attempts: 1, retryOn: '503,5xx, reset', backoff: 0s}",
        &[
            &format!(
                "error ^.retries.retryOn: \" reset\" is not a reason to retry; use {reasons} or a status such as 503"
            ),
            "error ^.retries.backoff: 0s is too short; use 1ms or more, or remove the field",
        ],
    );
}

#[test]
fn rewrites() {
    route("rewrite: {}", &["error ^.rewrite: nothing is rewritten; write uri, uriRegexRewrite or authority"]);
    route(
        "rewrite: {uri: /, uriRegexRewrite: {}}",
        &["error ^.rewrite: uri and uriRegexRewrite exclude each other; keep one of them"],
    );
    route(
        "rewrite: {uriRegexRewrite: {match: a}}",
        &["unfit ^.rewrite.uriRegexRewrite: both match and rewrite are needed"],
    );
    route(
        "rewrite: {uriRegexRewrite: {match: '(', rewrite: a}}",
        &["unfit ^.rewrite.uriRegexRewrite.match: not a regular expression of RE2: a ( is not closed"],
    );
}

#[test]
fn tls_and_tcp() {
    service(
        "{hosts: [a.com], tls: [{}, {match: [{sniHosts: [b.com, 10.0.0.1], destinationSubnets: [x]}], route: [{destination: {host: a}}]}]}",
        &[
            "error spec.tls[0].match: a TLS route needs at least one match with sniHosts",
            "unfit spec.tls[0].route: a TLS route needs a destination",
            "error spec.tls[1].match[0].sniHosts[0]: \"b.com\" is not among the hosts of the VirtualService (a.com); add it there",
            "warning spec.tls[1].match[0].sniHosts[1]: \"10.0.0.1\" is an IP address, which clients do not send as a server name; use a host name",
            "error spec.tls[1].match[0].destinationSubnets[0]: \"x\" is no address and no range of addresses; write it like 10.0.0.1 or 10.0.0.0/8",
            "warning spec.tls[1]: never reached: rule 0 matches everything; move that rule to the end",
        ],
    );
    service("{hosts: [a.com], tcp: [{}]}", &["unfit spec.tcp[0].route: a TCP route needs a destination"]);
}

#[test]
fn rules_that_are_never_reached() {
    let rules = |matches: &[&str], expected: &[&str]| {
        let rules: Vec<String> = matches
            .iter()
            .map(|wanted| format!("{{match: [{wanted}], route: [{{destination: {{host: a}}}}]}}"))
            .collect();
        service(&format!("{{hosts: [a], http: [{}]}}", rules.join(", ")), expected);
    };
    rules(
        &["", "{uri: {exact: /a}}"],
        &["warning spec.http[1]: never reached: rule 0 matches everything; move that rule to the end"],
    );
    rules(
        &["{name: x, uri: {exact: /a}}", "{name: y, uri: {exact: /a}}"],
        &[
            "warning spec.http[1].match[0]: never reached: rule 0 has the same match; remove one",
            "warning spec.http[1]: never reached: rules before this one have all of its matches; remove it",
        ],
    );
    rules(
        &["{uri: {prefix: /a}}", "{uri: {prefix: /a/b}}"],
        &[
            "warning spec.http[1].match[0]: never reached: prefix /a of rule 0 takes what begins with /a/b; put the longer prefix first",
        ],
    );
    rules(&["{uri: {prefix: /a/b}}", "{uri: {prefix: /a}}"], &[]);
    rules(&["{uri: {prefix: /a}, headers: {x: {exact: y}}}", "{uri: {prefix: /a/b}}"], &[]);
}

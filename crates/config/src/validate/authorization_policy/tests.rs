//! AuthorizationPolicies with errors or warnings, with their diagnostics.

use crate::validate::example::{Table, check};

const TABLE: Table = Table {
    kind: "AuthorizationPolicy",
    valid: "{rules: [{from: [{source: {namespaces: [a]}}], to: [{operation: {paths: [/a*]}}]}]}",
};

fn rule(rule: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|line| line.replace('^', "spec.rules[0]")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check(&TABLE, &format!("{{rules: [{{{rule}}}]}}"), &expected);
}

#[test]
fn actions() {
    check(
        &TABLE,
        "{action: DENY}",
        &["error spec.rules: without rules nothing is ever matched; write rules: [{}] for every request"],
    );
    check(
        &TABLE,
        "{provider: {name: a}}",
        &["error spec.provider: only action CUSTOM asks a provider; set that, or remove it"],
    );
    check(
        &TABLE,
        "{action: CUSTOM, rules: [{from: [{source: {namespaces: [a]}}], when: [{key: 'request.auth.claims[a]', values: [b]}]}]}",
        &[
            "error spec.provider.name: it is missing; action CUSTOM asks a provider",
            "error spec.rules[0].from[0].source.namespaces: not supported with action CUSTOM; remove it",
            "error spec.rules[0].when[0].key: not supported with action CUSTOM; remove it",
        ],
    );
    check(
        &TABLE,
        "{action: DENY, rules: [{to: [{operation: {methods: [GET]}}]}]}",
        &[
            "warning spec.rules[0]: TCP has none of the HTTP attributes that are asked for, so that all of it is denied; name the ports in to",
        ],
    );
    check(&TABLE, "{action: DENY, rules: [{to: [{operation: {methods: [GET], ports: ['80']}}]}]}", &[]);
}

#[test]
fn sources() {
    rule("from: [{}]", &["error ^.from[0].source: it is missing; write source: {..}, or remove the entry"]);
    rule(
        "from: [{source: {}}]",
        &["error ^.from[0].source: there is nothing in it; name a caller, or remove the entry"],
    );
    rule(
        "from: [{source: {principals: [''], serviceAccounts: [a/b/c], trustDomains: [a/b], ipBlocks: [x]}}]",
        &[
            "error ^.from[0].source: serviceAccounts say namespace and account already; remove them, or namespaces and principals",
            "error ^.from[0].source.serviceAccounts[0]: \"a/b/c\" is not a service account; write name or namespace/name, without *",
            "error ^.from[0].source.trustDomains[0]: \"a/b\" has a /, which no trust domain has; use principals instead",
            "error ^.from[0].source.principals[0]: a value cannot be empty; remove it, or write * for any",
            "error ^.from[0].source.ipBlocks[0]: \"x\" is no address and no range of addresses; write it like 10.0.0.1 or 10.0.0.0/8",
        ],
    );
}

#[test]
fn operations() {
    rule(
        "to: [{operation: {}}]",
        &["error ^.to[0].operation: there is nothing in it; name a port, method, path or host, or remove the entry"],
    );
    rule(
        "to: [{operation: {ports: [http], methods: [''], paths: ['/{**}/{*}', '/{a}', '/{*}/b*']}}]",
        &[
            "error ^.to[0].operation.ports[0]: \"http\" is not a port; use 1 to 65535",
            "error ^.to[0].operation.methods[0]: a value cannot be empty; remove it, or write * for any",
            "error ^.to[0].operation.paths[0]: \"/{**}/{*}\": {**} is the rest of a path; nothing in braces may follow it",
            "error ^.to[0].operation.paths[1]: \"/{a}\": only {*} and {**} may stand in braces, as whole segments",
            "error ^.to[0].operation.paths[2]: \"/{*}/b*\": \"b*\" cannot stand in a template; use plain segments",
        ],
    );
}

#[test]
fn conditions() {
    rule(
        "when: [{values: [a]}]",
        &["error ^.when[0].key: it is missing; name an attribute such as source.ip or request.headers[x]"],
    );
    rule("when: [{key: source.ip}]", &["error ^.when[0]: there is nothing to compare with; write values or notValues"]);
    rule(
        "when: [{key: source.ip, values: [x]}, {key: 'request.headers[]', values: [a]}, {key: destination.namespace, values: [a]}]",
        &[
            "error ^.when[0].values[0]: \"x\" is no address and no range of addresses; write it like 10.0.0.1 or 10.0.0.0/8",
            "error ^.when[1].key: \"request.headers[]\" needs a name in brackets, as in request.headers[x-user]",
            "error ^.when[2].key: use the namespace of the policy instead of destination.namespace",
        ],
    );
}

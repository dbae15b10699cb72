//! Random policies and requests from small pools, so that they meet often. The same seed gives the same ones.

use std::net::IpAddr;

use serde_json::{Value, json};
use testkit::random::Random;

use crate::evaluate::Request;

pub(crate) const IDENTITIES: [&str; 5] = [
    "mesh.example/ns/shop/sa/front",
    "old.example/ns/bank/sa/ledger",
    "other.example/ns/shop/sa/front",
    "mesh.example/ns/bankX2/sa/ledXer",
    "other.example/ns/bank/sa/batch",
];
pub(crate) const SERVER_NAMES: [&str; 2] = ["front.example.com", "a.example.org"];

const SOURCE: [(&str, &[&str]); 7] = [
    (
        "principals",
        &[
            "mesh.example/ns/shop/sa/front",
            "old.example/ns/bank/sa/ledger",
            "mesh.example/ns/bank/sa/ledger",
            "cluster.local/ns/shop/sa/*",
            "other.example/ns/bank/*",
            "*/sa/front",
            "*/sa/led.er",
            "*",
        ],
    ),
    (
        "requestPrincipals",
        &["https://issuer.example/alice", "https://issuer.example/*", "*/bob", "*.example/alice", "other/x", "*"],
    ),
    ("namespaces", &["shop", "ba*", "*nk", "bank.2", "s*p", "*"]),
    ("serviceAccounts", &["front", "bank/ledger", "shop/front", "bank.2/led.er"]),
    ("trustDomains", &["mesh.example", "old.example", "*.example", "other*", "*"]),
    ("ipBlocks", &["127.0.0.2", "127.0.0.0/30", "10.0.0.0/8", "127.0.0.5"]),
    ("remoteIpBlocks", &["203.0.113.0/24", "198.51.100.7", "2001:db8::/32", "127.0.0.0/8"]),
];

const OPERATION: [(&str, &[&str]); 4] = [
    ("hosts", &["front.shop", "FRONT.shop", "*.example.org", "front*", "*"]),
    ("methods", &["GET", "P*", "*T", "DELETE", "*"]),
    (
        "paths",
        &["/items", "/items/*", "*.html", "*", "/users/{*}/cart", "/files/{**}", "/v1/{*}/x/{**}", "/v1/{**}/end"],
    ),
    ("ports", &["OWN", "9999"]),
];

const CONDITION: [(&str, &[&str]); 17] = [
    ("request.headers[X-Team]", &["core", "pay*", "*-ops", "*"]),
    ("request.headers[x-missing]", &["*", "a"]),
    ("source.ip", &["127.0.0.2", "127.0.0.0/30", "192.0.2.0/24"]),
    ("remote.ip", &["203.0.113.0/24", "198.51.100.7", "127.0.0.2"]),
    ("source.namespace", &["shop", "ba*", "bank.2"]),
    ("source.principal", &["old.example/ns/shop/sa/front", "*/sa/ledger", "other.example/ns/shop/sa/front"]),
    ("source.serviceAccount", &["bank/ledger", "front"]),
    ("source.trustDomain", &["old.example", "oth*"]),
    ("request.auth.principal", &["https://issuer.example/bob", "*/alice", "*"]),
    ("request.auth.audiences", &["shop", "ap*", "other"]),
    ("request.auth.presenter", &["web", "*b", "*"]),
    ("request.auth.claims[groups]", &["admin", "*-lead", "guest"]),
    ("request.auth.claims[org][team]", &["core", "infra"]),
    ("request.auth.claims[scope]", &["read", "admin"]),
    ("destination.ip", &["127.0.0.1", "10.0.0.0/8"]),
    ("destination.port", &["OWN", "9999"]),
    ("connection.sni", &["front.example.com", "*.example.org", "*"]),
];

/// Policies of one workload in namespace `shop` with the label `app: web`; the port is what `OWN` stands for.
pub(crate) fn policies(random: &mut Random, port: u16) -> Vec<Value> {
    (0..=random.below(3)).map(|at| policy(random, at, port)).collect()
}

fn policy(random: &mut Random, at: usize, port: u16) -> Value {
    let rules: Vec<Value> = match random.below(12) {
        0 => Vec::new(),
        1 => vec![json!({})],
        _ => (0..=random.below(2)).map(|_| rule(random, port)).collect(),
    };
    let mut policy = json!({
        "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": {"name": format!("p{at}"), "namespace": random.pick(&["shop", "shop", "istio-system"])},
        "spec": {"action": random.pick(&["ALLOW", "ALLOW", "ALLOW", "DENY", "DENY", "AUDIT"]), "rules": rules},
    });
    if random.one_in(3) {
        policy["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    }
    if random.one_in(8) {
        policy["metadata"]["annotations"] = json!({"istio.io/dry-run": random.pick(&["true", "false"])});
    }
    policy
}

fn rule(random: &mut Random, port: u16) -> Value {
    let mut rule = json!({});
    if random.one_in(2) {
        rule["from"] = (0..=random.below(2)).map(|_| json!({"source": entry(random, &SOURCE, port)})).collect();
    }
    if random.one_in(2) {
        rule["to"] = (0..=random.below(2)).map(|_| json!({"operation": entry(random, &OPERATION, port)})).collect();
    }
    if random.one_in(2) {
        let conditions = (0..=random.below(2)).map(|_| {
            let (key, pool) = random.pick(&CONDITION);
            let name = random.pick(&["values", "values", "notValues"]);
            json!({"key": key, name: values(random, pool, port)})
        });
        rule["when"] = conditions.collect();
    }
    rule
}

fn entry(random: &mut Random, fields: &[(&str, &[&str])], port: u16) -> Value {
    let mut entry = json!({});
    for _ in 0..=random.below(2) {
        let (name, pool) = random.pick(fields);
        let negated = format!("not{}{}", name[..1].to_uppercase(), &name[1..]);
        let name = if random.one_in(3) { negated } else { name.to_owned() };
        entry[name] = values(random, pool, port);
    }
    entry
}

fn values(random: &mut Random, pool: &[&str], port: u16) -> Value {
    let count = 1 + random.below(2);
    let value = |text: &str| if text == "OWN" { port.to_string() } else { text.to_owned() };
    let mut values: Vec<String> = (0..count).map(|_| value(random.pick(pool))).collect();
    values.dedup();
    json!(values)
}

/// `claims` of the tokens that exist.
pub(crate) fn request(random: &mut Random, port: u16, claims: &[Value]) -> Request {
    let principal = (!random.one_in(4)).then(|| random.pick(&IDENTITIES).to_owned());
    let source = IpAddr::from([127, 0, 0, 1 + u8::try_from(random.below(5)).expect("below 5")]);
    let forwarded = random.pick(&[None, None, Some("203.0.113.9"), Some("198.51.100.7"), Some("2001:db8::5")]);
    let mut headers = Vec::new();
    headers.extend(forwarded.map(|address| ("x-forwarded-for".to_owned(), address.to_owned())));
    let team = random.pick(&[None, Some("core"), Some("payments"), Some("web-ops")]);
    headers.extend(team.map(|team| ("x-team".to_owned(), team.to_owned())));
    Request {
        source,
        remote: forwarded.map_or(source, |address| address.parse().expect("an address")),
        port,
        server_name: principal.as_ref().map(|_| random.pick(&SERVER_NAMES).to_owned()),
        principal,
        method: random.pick(&["GET", "GET", "POST", "PUT", "PATCH", "DELETE"]).to_owned(),
        host: random.pick(&["front.shop", "Front.SHOP", "a.example.org", "front.example.com:8080", "other"]).to_owned(),
        path: random
            .pick(&[
                "/items",
                "/items/1",
                "/items?a=/files/",
                "/x/../items",
                "/Items",
                "/a/b.html",
                "/users/7/cart",
                "/users/7/8/cart",
                "/users//cart",
                "/files/",
                "/files",
                "/files/a/b",
                "/v1/2/x/y/z",
                "/v1/2/3/end",
            ])
            .to_owned(),
        headers,
        claims: random.pick(&[None, Some(0), Some(1)]).map(|at| claims[at].clone()),
    }
}

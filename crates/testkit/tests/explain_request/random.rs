//! Random meshes on the fixed pods, and random requests. Small pools, so that rules and requests meet often.

use serde_json::{Value, json};
use testkit::random::Random;
use testkit::token::JwtIssuer;

pub(crate) const ISSUER: &str = "https://issuer.example";

const PATHS: [&str; 6] = ["/", "/a", "/a/b", "/api", "/api/v1", "/x.html"];
const HEADERS: [&str; 2] = ["x-team", "x-version"];
const VALUES: [&str; 4] = ["core", "core-2", "v2", ""];

/// What the rules of a round apply to, whichever they are.
pub(crate) struct Round {
    pub(crate) objects: Vec<Value>,
}

pub(crate) struct RandomRequest {
    pub(crate) from_outside: bool,
    pub(crate) host: String,
    pub(crate) service: &'static str,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) claims: Option<Value>,
}

fn object(kind: &str, group: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "shop"});
    let mut object = json!({"apiVersion": format!("{group}.istio.io/v1"), "kind": kind, "metadata": metadata});
    object["spec"] = spec;
    object
}

/// `number` marks the round in the routes of `one` and in a policy of all workloads.
pub(crate) fn round(random: &mut Random, number: usize, issuer: &JwtIssuer) -> Round {
    let mark = json!({"match": [{"uri": {"exact": format!("/mark-{number}")}}], "directResponse": {"status": 250}});
    let plain = json!({"route": [{"destination": {"host": "one"}}]});
    let deny = json!({"action": "DENY", "rules": [{"to": [{"operation": {"paths": [format!("/deny-{number}")]}}]}]});
    let mut objects = vec![
        object("VirtualService", "networking", "one", json!({"hosts": ["one"], "http": [mark, plain]})),
        object("AuthorizationPolicy", "security", "mark", deny),
        object("DestinationRule", "networking", "web", destination(random)),
        object("VirtualService", "networking", "web", json!({"hosts": ["web"], "http": routes(random)})),
        object("VirtualService", "networking", "edge", edge(random)),
        object("Gateway", "networking", "edge", gateway(random)),
    ];
    let mode = random.pick(&["STRICT", "PERMISSIVE", "PERMISSIVE", "DISABLE"]);
    objects.push(object("PeerAuthentication", "security", "default", json!({"mtls": {"mode": mode}})));
    if random.one_in(3) {
        let policy = json!({"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}});
        objects.push(object("Sidecar", "networking", "default", policy));
    }
    for host in ["one", "two", "three"] {
        let rule = json!({"host": host, "trafficPolicy": one_request_per_connection()});
        objects.push(object("DestinationRule", "networking", host, rule));
    }
    for at in 0..random.below(3) {
        objects.push(object("AuthorizationPolicy", "security", &format!("p{at}"), authorization(random)));
    }
    if random.one_in(2) {
        let rules = json!({"selector": {"matchLabels": {"app": "web"}}, "jwtRules": [{"issuer": ISSUER, "jwks": issuer.keys()}]});
        objects.push(object("RequestAuthentication", "security", "tokens", rules));
    }
    Round { objects }
}

fn destination(random: &mut Random) -> Value {
    let subset = |name: &str| json!({"name": name, "labels": {"version": name}});
    let mut rule = json!({"host": "web", "subsets": [subset("v1"), subset("v2"), subset("v3"), subset("v9")]});
    rule["trafficPolicy"] = one_request_per_connection();
    if random.one_in(4) {
        rule["trafficPolicy"]["tls"] = json!({"mode": random.pick(&["DISABLE", "ISTIO_MUTUAL"])});
    }
    rule
}

/// A connection that is kept stays with the filter chains of the round before, until its listener is drained.
fn one_request_per_connection() -> Value {
    json!({"connectionPool": {"http": {"maxRequestsPerConnection": 1}}})
}

fn gateway(random: &mut Random) -> Value {
    let hosts = random.pick(&[json!(["shop.example"]), json!(["*.example"]), json!(["*"])]);
    json!({
        "selector": {"app": "edge"},
        "servers": [{
            "port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": hosts,
            "tls": {"httpsRedirect": random.one_in(8)},
        }],
    })
}

fn edge(random: &mut Random) -> Value {
    let hosts = random.pick(&[json!(["shop.example"]), json!(["*.example"]), json!(["shop.example", "api.example"])]);
    json!({"hosts": hosts, "gateways": ["edge"], "http": routes(random)})
}

fn routes(random: &mut Random) -> Value {
    let mut routes: Vec<Value> = (0..random.below(5)).map(|_| route(random)).collect();
    for route in &mut routes {
        route["match"] = (0..=random.below(2)).map(|_| condition(random)).collect();
    }
    if !random.one_in(5) || routes.is_empty() {
        routes.push(route(random));
    }
    routes.into()
}

fn condition(random: &mut Random) -> Value {
    let mut wanted = json!({});
    if !random.one_in(3) {
        let path = random.pick(&PATHS);
        wanted["uri"] = match random.below(4) {
            0 => json!({"exact": path}),
            1 => json!({"regex": random.pick(&["/a/.*", "/(a|api)/?.*", "/[a-z]+", ".*\\.html"])}),
            _ => json!({"prefix": path}),
        };
        if random.one_in(4) {
            wanted["ignoreUriCase"] = json!(true);
        }
    }
    if random.one_in(3) {
        wanted["headers"] = json!({random.pick(&HEADERS): text_match(random)});
    }
    if random.one_in(5) {
        wanted["withoutHeaders"] = json!({random.pick(&HEADERS): text_match(random)});
    }
    if random.one_in(5) {
        wanted["queryParams"] = json!({"q": text_match(random)});
    }
    if random.one_in(6) {
        wanted["method"] = json!({"exact": random.pick(&["GET", "POST"])});
    }
    if random.one_in(8) {
        wanted["authority"] = json!({"prefix": random.pick(&["web.shop", "shop"])});
    }
    if wanted == json!({}) {
        wanted["uri"] = json!({"prefix": "/a"});
    }
    wanted
}

fn text_match(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"exact": random.pick(&["core", "v2"])}),
        1 => json!({"prefix": "core"}),
        2 => json!({"regex": random.pick(&["core.*", "v[0-9]", ".+"])}),
        _ => json!({}),
    }
}

fn route(random: &mut Random) -> Value {
    match random.below(10) {
        0 => json!({"redirect": {"uri": "/moved", "redirectCode": random.pick(&[301, 302, 307])}}),
        1 => json!({"redirect": {"authority": "other.example"}}),
        2 => json!({"directResponse": {"status": random.pick(&[200, 404, 503])}}),
        _ => forwarding(random),
    }
}

fn forwarding(random: &mut Random) -> Value {
    let mut route = match random.below(5) {
        0 => json!({"route": [
            {"destination": {"host": "web", "subset": "v1"}, "weight": 60},
            {"destination": destination_of(random), "weight": 40},
        ]}),
        _ => json!({"route": [{"destination": destination_of(random)}]}),
    };
    if random.one_in(4) {
        route["rewrite"] = match random.below(3) {
            0 => json!({"uri": "/rewritten"}),
            1 => json!({"authority": "new.example"}),
            _ => json!({"uriRegexRewrite": {"match": "^/([a-z]+)(.*)$", "rewrite": "/r/\\1\\2"}}),
        };
    }
    if random.one_in(5) {
        let percent = random.pick(&[100, 100, 50, 0]);
        route["fault"] = json!({"abort": {"httpStatus": random.pick(&[418, 503]), "percentage": {"value": percent}}});
    }
    if random.one_in(4) {
        let header = random.pick(&HEADERS);
        route["headers"] = match random.below(3) {
            0 => json!({"request": {"set": {header: "core"}}}),
            1 => json!({"request": {"add": {header: "core"}}}),
            _ => json!({"request": {"remove": [header]}}),
        };
    }
    route
}

fn destination_of(random: &mut Random) -> Value {
    match random.below(9) {
        0 => json!({"host": "idle"}),
        1 => json!({"host": "missing"}),
        2 => json!({"host": "two"}),
        3 => json!({"host": "web", "subset": "v9"}),
        4 | 5 => json!({"host": "web"}),
        _ => json!({"host": "web", "subset": random.pick(&["v1", "v2", "v3"])}),
    }
}

fn authorization(random: &mut Random) -> Value {
    let rules: Vec<Value> = (0..=random.below(2)).map(|_| rule(random)).collect();
    let mut policy = json!({"action": random.pick(&["ALLOW", "DENY", "DENY", "AUDIT"]), "rules": rules});
    let labels =
        random.pick(&[json!({"app": "web"}), json!({"version": "v1"}), json!({"app": "edge"}), json!({"app": "web"})]);
    policy["selector"] = json!({"matchLabels": labels});
    policy
}

fn rule(random: &mut Random) -> Value {
    let mut rule = json!({});
    if random.one_in(2) {
        let (name, pool): (&str, &[&str]) = random.pick(&[
            ("principals", &["cluster.local/ns/shop/sa/client", "*/sa/edge", "*"][..]),
            ("notPrincipals", &["cluster.local/ns/shop/sa/client"][..]),
            ("namespaces", &["shop", "other"][..]),
            ("ipBlocks", &["10.78.0.1", "10.78.0.254", "10.0.0.0/8"][..]),
            ("requestPrincipals", &["https://issuer.example/alice", "*"][..]),
        ]);
        rule["from"] = json!([{"source": {name: [random.pick(pool)]}}]);
    }
    if random.one_in(2) {
        let (name, pool): (&str, &[&str]) = random.pick(&[
            ("paths", &["/a*", "/api", "*.html", "/{*}/b", "/rewritten*"][..]),
            ("notPaths", &["/api*"][..]),
            ("methods", &["GET", "POST"][..]),
            ("hosts", &["web*", "shop.example", "new.example"][..]),
            ("ports", &["8080", "9090"][..]),
        ]);
        rule["to"] = json!([{"operation": {name: [random.pick(pool)]}}]);
    }
    if random.one_in(3) || rule == json!({}) {
        let key = random.pick(&[
            "request.headers[x-team]",
            "request.headers[x-version]",
            "request.auth.claims[group]",
            "source.namespace",
        ]);
        let field = random.pick(&["values", "values", "notValues"]);
        rule["when"] = json!([{"key": key, field: [random.pick(&["core", "core*", "admin", "shop"])]}]);
    }
    rule
}

pub(crate) fn claims() -> [Value; 2] {
    let exp = 4_000_000_000_u64;
    [
        json!({"iss": ISSUER, "sub": "alice", "group": "admin", "exp": exp}),
        json!({"iss": ISSUER, "sub": "bob", "group": ["core", "x"], "exp": exp}),
    ]
}

pub(crate) fn request(random: &mut Random) -> RandomRequest {
    let from_outside = random.one_in(4);
    let (service, hosts): (&str, &[&str]) = match (from_outside, random.below(10)) {
        (true, _) => ("edge", &["shop.example", "SHOP.example", "api.example", "other.test", "shop.example:80"]),
        (false, 0) => ("outside", &["outside.example"]),
        (false, 1) => ("idle", &["idle.shop"]),
        (false, 2) => ("two", &["two", "two.shop"]),
        (false, _) => ("web", &["web", "web.shop", "web.shop.svc.cluster.local", "web.shop:80", "Web.Shop"]),
    };
    let mut path =
        random.pick(&["/", "/a", "/A/b", "/a/b", "/a/../api", "/api", "/api/v1", "/apis", "/x.html", "//a"]).to_owned();
    if random.one_in(4) {
        path += &format!("?q={}", random.pick(&["core", "v2", "", "core-1"]));
    }
    let mut headers = Vec::new();
    for name in HEADERS {
        if random.one_in(2) {
            headers.push((name, random.pick(&VALUES).to_owned()));
        }
    }
    let claims = random.pick(&[None, None, Some(0), Some(1)]).map(|at: usize| claims()[at].clone());
    RandomRequest {
        from_outside,
        host: random.pick(hosts).to_owned(),
        service,
        method: random.pick(&["GET", "GET", "GET", "POST"]),
        path,
        headers,
        claims,
    }
}

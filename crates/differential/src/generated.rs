//! Objects that no case has: fields drawn independently of each other from small pools, so that their combinations meet.

use serde_json::{Map, Value, json};
use testkit::random::Random;

const NAMESPACES: [&str; 3] = ["shop", "bank", "istio-system"];
const HOSTS: [&str; 6] = [
    "*.wild.example",
    "one.example",
    "two.example",
    "cart.shop.svc.cluster.local",
    "api.wild.example",
    "three.example",
];
const ADDRESSES: [&str; 5] = ["203.0.113.1", "203.0.113.2", "203.0.113.0/24", "2001:db8::1", "198.51.100.7"];
const PROTOCOLS: [&str; 8] = ["HTTP", "HTTPS", "TCP", "TLS", "GRPC", "HTTP2", "MONGO", "MYSQL"];
const PORTS: [u32; 5] = [80, 443, 8080, 3306, 9000];

pub(crate) fn object(random: &mut Random) -> Value {
    let (kind, spec) = match random.below(4) {
        0 | 1 => ("ServiceEntry", service_entry(random)),
        2 => ("DestinationRule", destination_rule(random)),
        _ => ("Sidecar", sidecar(random)),
    };
    let name = format!("random-{}", random.below(1000));
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": kind,
        "metadata": { "name": name, "namespace": random.pick(&NAMESPACES) }, "spec": spec,
    })
}

/// One to three of them, each once.
fn some<T: Clone + PartialEq>(random: &mut Random, from: &[T]) -> Vec<T> {
    let mut out: Vec<T> = Vec::new();
    for _ in 0..=random.below(3) {
        let value = random.pick(from);
        if !out.contains(&value) {
            out.push(value);
        }
    }
    out
}

fn service_entry(random: &mut Random) -> Value {
    let resolution = random.pick(&["STATIC", "STATIC", "DNS", "NONE", "DNS_ROUND_ROBIN", "DYNAMIC_DNS"]);
    let ports: Vec<Value> = some(random, &PORTS).into_iter().map(|port| service_port(random, port)).collect();
    let mut spec = json!({ "hosts": some(random, &HOSTS), "ports": ports, "resolution": resolution });
    let mut optional = |field: &str, chance: usize, value: Value, random: &mut Random| {
        if random.one_in(chance) {
            spec[field] = value;
        }
    };
    let addresses = some(random, &ADDRESSES);
    optional("addresses", 2, json!(addresses), random);
    let location = random.pick(&["MESH_INTERNAL", "MESH_EXTERNAL"]);
    optional("location", 2, json!(location), random);
    let export = random.pick(&["*", ".", "bank"]);
    optional("exportTo", 4, json!([export]), random);
    let names = random.pick(&["spiffe://cluster.local/ns/shop/sa/cart", "other"]);
    optional("subjectAltNames", 5, json!([names]), random);
    if random.one_in(5) {
        spec["workloadSelector"] = json!({ "labels": { "app": random.pick(&["cart", "front", "vm"]) } });
    } else if resolution != "NONE" {
        let endpoints: Vec<Value> = (0..random.below(4)).map(|at| endpoint(random, resolution, at)).collect();
        spec["endpoints"] = json!(endpoints);
    }
    spec
}

fn service_port(random: &mut Random, port: u32) -> Value {
    let protocol = random.pick(&PROTOCOLS);
    let mut out =
        json!({ "number": port, "name": format!("{}-{port}", protocol.to_lowercase()), "protocol": protocol });
    if random.one_in(4) {
        out["targetPort"] = json!(random.pick(&[8443, 18080]));
    }
    out
}

fn endpoint(random: &mut Random, resolution: &str, at: usize) -> Value {
    let named = resolution != "STATIC" && !random.one_in(3);
    let address = if named { format!("e{at}.example") } else { format!("192.0.2.{}", at + 1) };
    let mut out = Map::from_iter([("address".to_owned(), json!(address))]);
    let mut optional = |field: &str, chance: usize, value: Value, random: &mut Random| {
        if random.one_in(chance) {
            out.insert(field.to_owned(), value);
        }
    };
    let locality = random.pick(&["region1/zone-a", "region1/zone-b", "region2/zone-c", "region1"]);
    optional("locality", 2, json!(locality), random);
    let weight = random.pick(&[1, 5, 100]);
    optional("weight", 3, json!(weight), random);
    let version = random.pick(&["v1", "v2"]);
    optional("labels", 2, json!({ "version": version }), random);
    optional("network", 5, json!("other"), random);
    out.into()
}

fn destination_rule(random: &mut Random) -> Value {
    let mut spec = json!({ "host": random.pick(&HOSTS) });
    if !random.one_in(4) {
        spec["trafficPolicy"] = policy(random);
        if random.one_in(4) {
            let mut port = policy(random);
            port["port"] = json!({ "number": random.pick(&PORTS) });
            spec["trafficPolicy"]["portLevelSettings"] = json!([port]);
        }
    }
    if random.one_in(2) {
        let mut subset = json!({ "name": "v1", "labels": { "version": "v1" } });
        if random.one_in(2) {
            subset["trafficPolicy"] = policy(random);
        }
        spec["subsets"] = json!([subset]);
    }
    if random.one_in(5) {
        spec["workloadSelector"] = json!({ "matchLabels": { "app": random.pick(&["cart", "front"]) } });
    }
    spec
}

fn policy(random: &mut Random) -> Value {
    let mut out = json!({});
    if random.one_in(2) {
        let mode = random.pick(&["DISABLE", "SIMPLE", "ISTIO_MUTUAL"]);
        out["tls"] = json!({ "mode": mode });
        if mode == "SIMPLE" && random.one_in(2) {
            out["tls"]["sni"] = json!("sni.example");
        }
    }
    if random.one_in(2) {
        out["loadBalancer"] = match random.below(4) {
            0 => json!({ "simple": random.pick(&["ROUND_ROBIN", "LEAST_REQUEST", "RANDOM", "PASSTHROUGH"]) }),
            1 => json!({ "consistentHash": { "httpHeaderName": "x-user" } }),
            2 => json!({ "simple": "LEAST_REQUEST", "warmup": { "duration": "30s" } }),
            _ => json!({ "localityLbSetting": { "failover": [{ "from": "region1", "to": "region2" }] } }),
        };
    }
    if random.one_in(3) {
        out["outlierDetection"] = json!({ "consecutive5xxErrors": random.below(5), "interval": "5s" });
    }
    if random.one_in(3) {
        let http = json!({ "http1MaxPendingRequests": 5, "h2UpgradePolicy": random.pick(&["UPGRADE", "DO_NOT_UPGRADE", "DEFAULT"]) });
        out["connectionPool"] = json!({ "http": http, "tcp": { "maxConnections": random.below(9) + 1 } });
    }
    if random.one_in(6) {
        out["proxyProtocol"] = json!({ "version": random.pick(&["V1", "V2"]) });
    }
    out
}

fn sidecar(random: &mut Random) -> Value {
    let hosts =
        ["*/*", "./*", "bank/*", "shop/cart.shop.svc.cluster.local", "*/*.wild.example", "~/*", "*/one.example"];
    let mut listeners = vec![json!({ "hosts": some(random, &hosts) })];
    if random.one_in(2) {
        let port = random.pick(&PORTS);
        let protocol = random.pick(&["HTTP", "TCP", "TLS"]);
        let mut listener = json!({
            "port": { "number": port, "name": format!("{}-{port}", protocol.to_lowercase()), "protocol": protocol },
            "hosts": some(random, &hosts),
        });
        if random.one_in(3) {
            listener["bind"] = json!(random.pick(&["0.0.0.0", "127.0.0.1", "203.0.113.1"]));
        }
        listeners.insert(0, listener);
    }
    let mut spec = json!({ "egress": listeners });
    if random.one_in(2) {
        spec["workloadSelector"] = json!({ "labels": { "app": random.pick(&["cart", "front", "ledger"]) } });
    }
    if random.one_in(3) {
        spec["outboundTrafficPolicy"] = json!({ "mode": random.pick(&["REGISTRY_ONLY", "ALLOW_ANY"]) });
    }
    spec
}

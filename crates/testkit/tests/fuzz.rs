//! Patches and plugins of the corpus, mutated at random: whatever a user writes, nobody panics, and what proxies are sent can be decoded.
//! A few seconds here; `cargo xtask fuzz translation` for as long as one likes. A failure prints the seed that leads to it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::Result;
use config::object::parse_documents;
use config::store::Update;
use serde_json::{Map, Value, json};
use testkit::parity::{Case, Corpus, InProcess, ResourceSource};
use testkit::random::Random;
use testkit::{environment, say};
use xds::TypeUrl;

/// Of one mesh with everything in it; a hundred times what it takes.
const SLOW: Duration = Duration::from_secs(20);
const KINDS: [TypeUrl; 4] = [TypeUrl::Cluster, TypeUrl::Listener, TypeUrl::Route, TypeUrl::Extension];

#[test]
fn mutated_extensions_never_panic() {
    let (seed, limit) = environment::fuzz();
    let corpus = Corpus::open().unwrap();
    let names: Vec<_> = corpus.names.iter().filter(|name| name.starts_with("extend-")).collect();
    let cases: Vec<Case> = names.iter().map(|name| corpus.case(name).unwrap()).collect();
    let (began, mut tried) = (Instant::now(), 0);
    let mut seeds = Random::new(seed);
    while began.elapsed() < limit || tried < cases.len() {
        let own = seeds.number();
        let case = &cases[tried % cases.len()];
        let one = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| round(case, &mut Dice(Random::new(own))))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("seed {seed}, round {tried} ({}): {error:#}", case.name),
            Err(_) => panic!("seed {seed}, round {tried} ({}): it panicked, see above", case.name),
        }
        assert!(one.elapsed() < SLOW, "seed {seed}, round {tried} ({}) took {:?}", case.name, one.elapsed());
        tried += 1;
    }
    say(&format!("fuzz: {tried} mutated meshes in {:?}, seed {seed}", began.elapsed()));
}

fn round(case: &Case, dice: &mut Dice) -> Result<()> {
    let mut objects = case.objects.clone();
    for object in objects.values_mut().flatten() {
        if ["EnvoyFilter", "WasmPlugin", "TrafficExtension"].iter().any(|kind| object["kind"] == *kind) {
            for _ in 0..=dice.below(4) {
                mutate(&mut object["spec"], dice, 0);
            }
        }
    }
    // Each as a text of its own: what cannot be read at all loses itself only.
    let texts = objects.values().flatten().map(Value::to_string);
    let read = texts.flat_map(|text| parse_documents("fuzz.yaml", &text).objects);
    let plane = InProcess::with(read.map(Update::Put).collect());
    for proxy in &case.proxies {
        let mut proxy = plane.proxy(proxy)?;
        for kind in KINDS {
            for any in proxy.ask(kind.url(), &BTreeSet::new())?.into_values() {
                let shown = wire::json::to_value(&any);
                anyhow::ensure!(shown.get("@bytes").is_none(), "{shown} does not decode");
            }
        }
    }
    Ok(())
}

/// Walks down and changes something where it ends up.
fn mutate(value: &mut Value, dice: &mut Dice, depth: usize) {
    let stop = dice.below(6) == 0 || depth > 12;
    match value {
        Value::Object(fields) if !fields.is_empty() && !stop => {
            let key = dice.key(fields);
            match dice.below(12) {
                0 => drop(fields.remove(&key)),
                1 => {
                    let (to, moved) = (dice.word(), fields[&key].clone());
                    fields.insert(to, moved);
                }
                _ => mutate(&mut fields[&key], dice, depth + 1),
            }
        }
        Value::Array(items) if !items.is_empty() && !stop => {
            let index = dice.below(items.len());
            match dice.below(10) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                2 => items.swap(0, index),
                _ => mutate(&mut items[index], dice, depth + 1),
            }
        }
        other => *other = dice.value(),
    }
}

/// Random parts of objects.
struct Dice(Random);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn key(&mut self, fields: &Map<String, Value>) -> String {
        let index = self.below(fields.len());
        fields.keys().nth(index).expect("below their number").clone()
    }

    /// Words that mean something to somebody.
    fn word(&mut self) -> String {
        const WORDS: [&str; 30] = [
            "",
            "name",
            "value",
            "typed_config",
            "@type",
            "operation",
            "MERGE",
            "REPLACE",
            "INSERT_BEFORE",
            "REMOVE",
            "HTTP_FILTER",
            "NETWORK_FILTER",
            "CLUSTER",
            "VIRTUAL_HOST",
            "LISTENER_FILTER",
            "FILTER_CHAIN",
            "ANY",
            "GATEWAY",
            "envoy.filters.http.router",
            "envoy.filters.network.http_connection_manager",
            "virtualInbound",
            "15s",
            "-1s",
            "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "type.googleapis.com/google.protobuf.Any",
            "type.googleapis.com/no.Such",
            "transport_socket",
            "filters",
            "\u{0}é",
        ];
        WORDS[self.below(WORDS.len())].to_owned()
    }

    fn value(&mut self) -> Value {
        match self.below(12) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(self.0.number() as i64),
            3 => json!(-1),
            4 => json!(0.5),
            5 => json!([]),
            6 => json!({}),
            7 => (0..self.below(200)).fold(json!("end"), |inner, _| json!({ "a": inner })),
            8 => (0..self.below(200)).fold(json!(1), |inner, _| json!([inner])),
            9 => json!("x".repeat(self.below(1 << 16))),
            10 => json!({ (self.word()): self.word(), (self.word()): [self.word()] }),
            _ => json!(self.word()),
        }
    }
}

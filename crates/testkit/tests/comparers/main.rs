//! Our comparer and the arbiter, parity.py, agree: on the corpus, on how messages are decoded, and line by line on what differs.

mod message;
mod mutation;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::parity::{Corpus, ResponsesByProxy, compare, decode_any, differences};
use testkit::random::Random;
use testkit::{environment, skip};
use wire::google::protobuf::Any;

/// `None` when the arbiter or its Python is absent; then the skip has been reported.
fn run_arbiter<T: DeserializeOwned>(command: &str, input: &[u8]) -> Option<T> {
    let (Some(arbiter), Some(python)) = (environment::arbiter(), environment::python()) else {
        skip("comparing the comparers: no arbiter (MELTEMI_ARBITER) or no Python for it (`cargo xtask setup`)");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arbiter.py");
    let mut child = Command::new(python)
        .arg(script)
        .arg(arbiter)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts");
    child.stdin.take().expect("it is piped").write_all(input).expect("the arbiter reads its input");
    let out = child.wait_with_output().expect("the arbiter ends");
    assert!(out.status.success(), "the arbiter failed, see above");
    Some(serde_json::from_slice(&out.stdout).expect("the arbiter answers in JSON"))
}

#[test]
fn what_the_arbiter_does_not_know_is_listed() {
    let set = wire::pool().encode_to_vec();
    let Some(unknown) = run_arbiter::<Vec<String>>("unknown", &set) else { return };
    let listed: Vec<&str> = include_str!("../../src/parity/unknown.txt").lines().collect();
    assert!(unknown == listed, "unknown.txt is out of date; write this to it:\n{}", unknown.join("\n"));
}

#[derive(Deserialize)]
struct ArbiterCase {
    objects: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    expected: ResponsesByProxy,
}

#[test]
fn cases_are_read_alike() {
    let corpus = Corpus::open().unwrap();
    let folder = corpus.folder.to_str().expect("a UTF-8 path");
    let Some(theirs) = run_arbiter::<BTreeMap<String, ArbiterCase>>("corpus", folder.as_bytes()) else { return };
    assert!(theirs.keys().eq(&corpus.names));
    for (name, theirs) in theirs {
        let case = corpus.case(&name).unwrap();
        assert_eq!(json!(case.objects), json!(theirs.objects), "{name}");
        for proxy in &case.proxies {
            let ours = decode_any(&wire::any::pack(&proxy.node()));
            let mut want = theirs.nodes[&proxy.name].clone();
            want["@type"] = ours["@type"].clone();
            assert_eq!(differences(&want, &ours), [""; 0], "{name}: {}", proxy.name);
        }
        let found = compare(&name, &theirs.expected, &case.expected().unwrap());
        assert!(found.equal(), "{:?}", found.lines);
    }
}

#[test]
fn messages_are_decoded_alike() {
    let mut random = Random::new(7);
    let messages: Vec<Any> = (0..1500).map(|_| message::any(&mut random, 0)).collect();
    let input: Vec<_> = messages.iter().map(|any| (&any.type_url, STANDARD.encode(&any.value))).collect();
    let Some(theirs) = run_arbiter::<Vec<Value>>("open", &serde_json::to_vec(&input).unwrap()) else { return };
    assert_eq!(theirs.len(), messages.len());
    for (any, theirs) in messages.iter().zip(&theirs) {
        assert_eq!(differences(theirs, &decode_any(any)), [""; 0], "{theirs}");
    }
}

#[test]
fn the_arbiter_finds_the_base_equal() {
    let (Some(arbiter), Some(python)) = (environment::arbiter(), environment::python()) else {
        return skip(
            "the arbiter's own verdict: no arbiter (MELTEMI_ARBITER) or no Python for it (`cargo xtask setup`)",
        );
    };
    let program = testkit::server::program().unwrap();
    let off = "--secureGRPCAddr= --httpAddr= --httpsAddr= --monitoringAddr=";
    let run = format!("{} serve --config {{dir}} --grpcAddr 127.0.0.1:{{port}} {off}", program.display());
    let case = Corpus::open().unwrap().folder.join("base-only");
    let out = Command::new(python).arg(arbiter).arg("check").arg(case).args(["--run", &run]).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && stdout.contains("184 of 184 resources equal"), "{stdout}");
}

#[derive(Deserialize, PartialEq, Debug)]
struct Verdict {
    same: usize,
    total: usize,
    lines: Vec<String>,
}

#[test]
fn differences_are_the_same_lines() {
    let corpus = Corpus::open().unwrap();
    let mut random = Random::new(11);
    let mut comparisons = Vec::new();
    for name in ["base-only", "services-dns-table", "routes-request-match", "authz-sources", "extend-listener"] {
        let want = corpus.case(name).unwrap().expected().unwrap();
        for _ in 0..4 {
            let mut got = want.clone();
            mutation::mutate(&mut random, &mut got);
            comparisons.push((name, want.clone(), got));
        }
    }
    let Some(theirs) = run_arbiter::<Vec<Verdict>>("compare", &serde_json::to_vec(&comparisons).unwrap()) else {
        return;
    };
    for ((name, want, got), theirs) in comparisons.iter().zip(theirs) {
        let ours = compare(name, want, got);
        assert_eq!(Verdict { same: ours.same, total: ours.total, lines: ours.lines }, theirs);
        assert!(theirs.same < theirs.total, "the mutations of {name} must show");
    }
}

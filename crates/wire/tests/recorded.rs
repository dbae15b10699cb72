//! Every recorded response of the parity corpus through JSON -> bytes -> JSON, and compared with the generated types.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use wire::any::Packable;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::core::v3::TypedExtensionConfig;
use wire::envoy::config::endpoint::v3::ClusterLoadAssignment;
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::google::protobuf::Any;
use wire::istio::networking::nds::v1::NameTable;
use wire::{any, json};

#[test]
fn recorded_responses_round_trip() {
    let mut seen = 0;
    for file in recorded_files() {
        let text = fs::read_to_string(&file).expect("the corpus is readable");
        let answers: Value = serde_json::from_str(&text).expect("the corpus is JSON");
        for (kind, resources) in answers.as_object().expect("an answer is by type") {
            for (name, recorded) in resources.as_object().into_iter().flatten().filter(|(_, r)| r.is_object()) {
                let place = format!("{} {kind} {name}", file.display());
                let made = json::from_value(recorded).unwrap_or_else(|e| panic!("{place}: {e}"));
                let shown = json::to_value(&made);
                same(recorded, &shown).unwrap_or_else(|why| panic!("{place}: {why}"));
                assert_eq!(json::from_value(&shown).as_ref(), Ok(&made), "{place}");
                assert!(as_generated(&made), "{place}: the generated type encodes other bytes");
                seen += 1;
            }
        }
    }
    assert!(seen > 1_000, "only {seen} resources found: where is the corpus?");
}

fn recorded_files() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    let cases = fs::read_dir(corpus).expect("tests/parity holds the corpus").flatten();
    let mut files: Vec<_> = cases
        .filter_map(|case| fs::read_dir(case.path().join("expect")).ok())
        .flatten()
        .flatten()
        .map(|f| f.path())
        .collect();
    files.sort();
    files
}

fn as_generated(made: &Any) -> bool {
    fn equal<M: Packable + Default>(made: &Any) -> Option<bool> {
        let message = any::unpack::<M>(made)?;
        let bytes = message.encode_to_vec();
        assert_eq!(protobuf::encode(&message), bytes, "the writer and prost differ");
        assert_eq!(read_whole(&bytes), bytes, "the reader leaves something out");
        Some(any::pack(&message) == *made)
    }
    equal::<Cluster>(made)
        .or_else(|| equal::<ClusterLoadAssignment>(made))
        .or_else(|| equal::<Listener>(made))
        .or_else(|| equal::<RouteConfiguration>(made))
        .or_else(|| equal::<TypedExtensionConfig>(made))
        .or_else(|| equal::<NameTable>(made))
        .unwrap_or(false)
}

/// The message, field by field.
fn read_whole(message: &[u8]) -> Vec<u8> {
    let mut fields = protobuf::Fields::new(message);
    let mut read = Vec::new();
    while let Some(field) = fields.next_field().expect("a message") {
        read.extend_from_slice(field.whole);
    }
    read
}

/// Equal except for the recorder's own forms: 64-bit integers without quotes, 1.0 for 1, and Istio's messages as bytes.
fn same(recorded: &Value, shown: &Value) -> Result<(), String> {
    match (recorded, shown) {
        (Value::Object(recorded), Value::Object(_)) if recorded.contains_key("@bytes") => {
            let opened = json::from_value(&Value::Object(recorded.clone())).map_err(|e| e.to_string())?;
            let expected = if opened == Any::default() { serde_json::json!({}) } else { json::to_value(&opened) };
            (expected == *shown).then_some(()).ok_or_else(|| format!("bytes: {expected} against {shown}"))
        }
        (Value::Object(recorded), Value::Object(shown)) => {
            if let Some(key) = shown.keys().find(|key| !recorded.contains_key(*key)) {
                return Err(format!("{key} was added"));
            }
            recorded.iter().try_for_each(|(key, value)| {
                same(value, shown.get(key).ok_or_else(|| format!("{key} was lost"))?).map_err(|e| format!("{key}.{e}"))
            })
        }
        (Value::Array(recorded), Value::Array(shown)) if recorded.len() == shown.len() => recorded
            .iter()
            .zip(shown)
            .enumerate()
            .try_for_each(|(i, (recorded, shown))| same(recorded, shown).map_err(|e| format!("[{i}].{e}"))),
        (Value::Number(recorded), Value::Number(shown)) if recorded.as_f64() == shown.as_f64() => Ok(()),
        (Value::Number(recorded), Value::String(shown)) if recorded.to_string() == *shown => Ok(()),
        (recorded, shown) if recorded == shown => Ok(()),
        (recorded, shown) => Err(format!("{recorded} against {shown}")),
    }
}

//! Objects as files, as an API server sends them, and as the validation webhook gets them: whatever is written, there are objects and diagnostics, soon.

use std::time::{Duration, Instant};

use config::json::ObjectTree;
use config::kind::Kind;
use config::object::{Parsed, parse_documents, parse_tree};
use serde::de::DeserializeSeed;
use serde_json::Value;

/// For some kilobytes; a hundred times what they take.
const SLOW: Duration = Duration::from_secs(10);

/// The first byte selects: a file, or a kind of the API server.
pub fn objects(data: &[u8]) {
    let began = Instant::now();
    let Some((first, rest)) = data.split_first() else { return };
    match Kind::ALL.get(usize::from(*first)) {
        Some(kind) => {
            let mut json = serde_json::Deserializer::from_slice(rest);
            if let Ok(tree) = ObjectTree(*kind).deserialize(&mut json) {
                check(&parse_tree(*kind, &tree));
            }
        }
        None => check(&parse_documents("a.yaml", &String::from_utf8_lossy(data))),
    }
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
}

/// An AdmissionReview.
pub fn webhook(data: &[u8]) {
    let began = Instant::now();
    let Ok(review) = serde_json::from_slice::<Value>(data) else { return };
    let request = &review["request"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = format!("{}/{}", text(&request["kind"]["group"]), text(&request["kind"]["version"]));
    let Some(kind) = Kind::from_gvk(&api_version, &text(&request["kind"]["kind"])) else { return };
    if let Ok(tree) = ObjectTree(kind).deserialize(&request["object"]) {
        check(&parse_tree(kind, &tree));
    }
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
}

fn check(parsed: &Parsed) {
    for diagnostic in &parsed.diagnostics {
        assert!(!diagnostic.to_string().is_empty());
    }
    for object in &parsed.objects {
        assert!(!object.id().name.is_empty(), "an object without a name was accepted");
    }
}

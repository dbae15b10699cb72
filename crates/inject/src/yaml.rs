//! YAML 1.1 into JSON, as Kubernetes' YAML library reads what templates write and what a ConfigMap holds.

mod simple;

use config::tree::{Node, Value};
use config::yaml::{Scalars, documents};
use serde_json::{Number, Value as Json};

/// The first document; null if there is none. `Err`: line, column and fault.
pub(crate) fn json(text: &str) -> Result<Json, String> {
    let Some(json) = simple::json(text) else { return parsed(text) };
    debug_assert_eq!(Ok(&json), parsed(text).as_ref(), "both ways to read a text give the same: {text}");
    Ok(json)
}

/// By the parser of all of YAML.
fn parsed(text: &str) -> Result<Json, String> {
    match documents(text, Scalars::MeshConfig).next() {
        None => Ok(Json::Null),
        Some(Ok(node)) => Ok(plain(&node)),
        Some(Err(error)) => Err(format!("{}:{}: {}", error.at.line, error.at.column, error.what)),
    }
}

fn plain(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Integer(number) => Json::from(*number),
        Value::Float(number) => Number::from_f64(*number).map_or(Json::Null, Json::Number),
        Value::Text(text) => Json::String(text.to_string()),
        Value::List(items) => Json::Array(items.iter().map(plain).collect()),
        Value::Mapping(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.to_string(), plain(&entry.value))).collect())
        }
    }
}

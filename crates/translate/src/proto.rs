//! Small protobuf values: durations, wrappers, Structs, metadata.

use std::collections::BTreeMap;

use wire::envoy::config::core::v3::Metadata;
use wire::google::protobuf::{Any, BoolValue, Duration, ListValue, Struct, UInt32Value, Value, value::Kind};

pub(crate) fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

pub(crate) fn duration(duration: &config::duration::Duration) -> Duration {
    Duration { seconds: duration.seconds, nanos: duration.nanos }
}

pub(crate) fn uint32(value: u32) -> UInt32Value {
    UInt32Value { value }
}

pub(crate) fn boolean(value: bool) -> BoolValue {
    BoolValue { value }
}

pub(crate) fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}

pub(crate) fn truth(value: bool) -> Value {
    Value { kind: Some(Kind::BoolValue(value)) }
}

pub(crate) fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value { kind: Some(Kind::StructValue(proto_struct(fields))) }
}

pub(crate) fn proto_struct<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

/// `None`: not a string.
pub(crate) fn as_text(value: &Value) -> Option<&str> {
    match &value.kind {
        Some(Kind::StringValue(text)) => Some(text),
        _ => None,
    }
}

pub(crate) fn json_object(object: &serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct { fields: object.iter().map(|(key, value)| (key.clone(), json(value))).collect() }
}

fn json(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(set) => Kind::BoolValue(*set),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(json).collect() }),
        Json::Object(object) => Kind::StructValue(json_object(object)),
    };
    Value { kind: Some(kind) }
}

/// Metadata with one section.
pub(crate) fn metadata(section: &str, fields: Struct) -> Metadata {
    Metadata { filter_metadata: BTreeMap::from([(section.to_owned(), fields)]), ..Metadata::default() }
}

/// A configuration whose schema only Istio's build of Envoy knows.
pub(crate) fn typed_struct(type_name: &str, value: Struct) -> Any {
    wire::any::pack(&wire::udpa::r#type::v1::TypedStruct {
        type_url: format!("type.googleapis.com/{type_name}"),
        value: Some(value),
    })
}

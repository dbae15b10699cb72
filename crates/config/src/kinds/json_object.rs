//! Fields without a schema (`google.protobuf.Struct`): kept as JSON, nulls included.

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JsonObject(pub Map<String, Value>);

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonObject, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(map) => Ok(JsonObject(map)),
            Value::Array(_) => Err(de::Error::custom("expected a mapping, found a list")),
            other => Err(de::Error::custom(format_args!("expected a mapping, found {other}"))),
        }
    }
}

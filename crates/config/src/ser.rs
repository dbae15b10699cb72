//! Serialization of specs and the mesh config as protobuf's JSON: unset fields are omitted, 64-bit numbers are strings. `de` reads it.

use serde::ser::{Error as _, Impossible, SerializeMap, SerializeSeq, SerializeStruct};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Null if serialization fails, which no type of this crate does.
pub fn to_json(value: &impl Serialize) -> Value {
    value.serialize(Writer).map_or(Value::Null, |written| written.value)
}

/// For fields of types that serialize as maps: `Writer` cannot distinguish those from map entries.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// For a field with a non-protobuf default, so that protobuf's default counts as set.
pub(crate) fn set<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(value)
}

/// `kinds::json_object::JsonObject`: its numbers have no width and stay numbers.
const WITHOUT_SCHEMA: &str = "JsonObject";

struct Writer;

struct Written {
    value: Value,
    /// It is protobuf's default of an unset field.
    unset: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Error(String);

impl serde::ser::Error for Error {
    fn custom<T: std::fmt::Display>(what: T) -> Error {
        Error(what.to_string())
    }
}

macro_rules! numbers {
    ($($method:ident: $type:ty => $value:expr;)*) => {$(
        fn $method(self, number: $type) -> Result<Written, Error> {
            let write: fn($type) -> Value = $value;
            Ok(Written { value: write(number), unset: number == <$type>::default() })
        }
    )*};
}

impl Serializer for Writer {
    type Ok = Written;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = Impossible<Written, Error>;
    type SerializeTupleStruct = Impossible<Written, Error>;
    type SerializeTupleVariant = Impossible<Written, Error>;
    type SerializeMap = Entries;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Impossible<Written, Error>;

    numbers! {
        serialize_bool: bool => Value::from;
        serialize_i8: i8 => Value::from;
        serialize_i16: i16 => Value::from;
        serialize_i32: i32 => Value::from;
        serialize_i64: i64 => |number| Value::from(number.to_string());
        serialize_u8: u8 => Value::from;
        serialize_u16: u16 => Value::from;
        serialize_u32: u32 => Value::from;
        serialize_u64: u64 => |number| Value::from(number.to_string());
        serialize_f32: f32 => |number| float(number.into());
        serialize_f64: f64 => float;
    }

    fn serialize_char(self, letter: char) -> Result<Written, Error> {
        Ok(Written { value: letter.to_string().into(), unset: false })
    }

    fn serialize_str(self, text: &str) -> Result<Written, Error> {
        Ok(Written { value: text.into(), unset: text.is_empty() })
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<Written, Error> {
        Err(Error::custom("bytes must be base64-encoded before they are serialized"))
    }

    fn serialize_none(self) -> Result<Written, Error> {
        self.serialize_unit()
    }

    /// A message, or a wrapped value: set, whatever its value.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Written, Error> {
        Ok(Written { unset: false, ..value.serialize(Writer)? })
    }

    fn serialize_unit(self) -> Result<Written, Error> {
        Ok(Written { value: Value::Null, unset: true })
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Written, Error> {
        Ok(Written { value: Value::Object(Map::new()), unset: true })
    }

    /// The first variant of an enum is its zero.
    fn serialize_unit_variant(self, _: &'static str, number: u32, name: &'static str) -> Result<Written, Error> {
        Ok(Written { value: name.into(), unset: number == 0 })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<Written, Error> {
        if name == WITHOUT_SCHEMA {
            let value = serde_json::to_value(value).map_err(Error::custom)?;
            return Ok(Written { unset: value == Value::Object(Map::new()), value });
        }
        value.serialize(Writer)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<Written, Error> {
        let value = value.serialize(Writer)?.value;
        Ok(Written { value: Value::Object(Map::from_iter([(name.to_owned(), value)])), unset: false })
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, Error> {
        Ok(List(Vec::new()))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        Err(Error::custom("protobuf has no tuples"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Error> {
        Err(Error::custom("protobuf has no tuples"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(Error::custom("protobuf has no tuples"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries, Error> {
        Ok(Entries { map: Map::new(), key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, Error> {
        Ok(Fields(Map::new()))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(Error::custom("a member of a oneof is a message of its own"))
    }
}

/// Integral floats without a decimal point, as protobuf does.
fn float(number: f64) -> Value {
    let whole = number.fract() == 0.0 && number.abs() < 1e15;
    if whole { Value::from(number as i64) } else { Value::from(number) }
}

struct List(Vec<Value>);

impl SerializeSeq for List {
    type Ok = Written;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.0.push(value.serialize(Writer)?.value);
        Ok(())
    }

    fn end(self) -> Result<Written, Error> {
        Ok(Written { unset: self.0.is_empty(), value: self.0.into() })
    }
}

struct Entries {
    map: Map<String, Value>,
    key: String,
}

impl SerializeMap for Entries {
    type Ok = Written;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = match key.serialize(Writer)?.value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let value = value.serialize(Writer)?.value;
        self.map.insert(std::mem::take(&mut self.key), value);
        Ok(())
    }

    fn end(self) -> Result<Written, Error> {
        Ok(Written { unset: self.map.is_empty(), value: self.map.into() })
    }
}

struct Fields(Map<String, Value>);

impl SerializeStruct for Fields {
    type Ok = Written;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        let written = value.serialize(Writer)?;
        if !written.unset {
            self.0.insert(name.to_owned(), written.value);
        }
        Ok(())
    }

    fn end(self) -> Result<Written, Error> {
        Ok(Written { unset: self.0.is_empty(), value: self.0.into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::parse_documents;
    use crate::store::{Store, StoreOptions, Update};

    /// The spec of the only object.
    fn spec(text: &str) -> Value {
        let parsed = parse_documents("f.yaml", text);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        let snapshot = store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let (_, _, spec) = snapshot.istio_specs().remove(0);
        spec
    }

    #[test]
    fn what_was_not_written_is_left_out_and_what_was_is_there() {
        let text = "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: a, namespace: n}, spec: {host: a, trafficPolicy: \
                    {loadBalancer: {consistentHash: {useSourceIp: false, minimumRingSize: 7}}, outlierDetection: {consecutive5xxErrors: 0}}}}";
        assert_eq!(
            spec(text),
            json!({"host": "a", "trafficPolicy": {
                "loadBalancer": {"consistentHash": {"useSourceIp": false, "minimumRingSize": "7"}},
                "outlierDetection": {"consecutive5xxErrors": 0},
            }})
        );
    }

    #[test]
    fn members_of_oneofs_stand_under_their_own_names() {
        let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: n}, spec: {hosts: [a], http: [{match: \
                    [{uri: {prefix: /}}], fault: {abort: {httpStatus: 503, percentage: {value: 50}}, delay: {fixedDelay: 1500ms}}, route: [{destination: {host: a}}]}]}}";
        let fault =
            json!({"abort": {"httpStatus": 503, "percentage": {"value": 50}}, "delay": {"fixedDelay": "1.500s"}});
        let route = &spec(text)["http"][0];
        assert_eq!((&route["fault"], &route["match"][0]["uri"]), (&fault, &json!({"prefix": "/"})));
    }
}

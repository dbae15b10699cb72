//! Protobuf as JSON with every Any opened, in the arbiter's spelling. Fields and types that its older protos lack are left out,
//! since the recorded answers cannot hold them.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, SerializeOptions, Value as Field};
use serde_json::{Map, Number, Value, json};
use wire::google::protobuf::Any;

/// One `message`, `message.field` or `enum.VALUE` of Envoy's per line that the arbiter's packages do not know.
static UNKNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| include_str!("unknown.txt").lines().collect());

const NAME_TABLE: &str = "istio.networking.nds.v1.NameTable";

/// Map entries whose value says nothing: Kubernetes gives a WasmPlugin another resource version in each run.
const NOT_COMPARED: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";

/// The Any as an object with `@type`. An unknown type keeps its bytes in `@bytes`; bytes that do not parse get an `@error`, which equals nothing.
pub fn decode_any(any: &Any) -> Value {
    open(&any.type_url, &any.value)
}

fn open(type_url: &str, bytes: &[u8]) -> Value {
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let descriptor = wire::pool().get_message_by_name(name).filter(|_| known(name));
    let Some(descriptor) = descriptor else {
        return json!({ "@type": type_url, "@bytes": STANDARD.encode(bytes) });
    };
    let mut out = match DynamicMessage::decode(descriptor, bytes).map(|message| tree(&message)) {
        Ok(Value::Object(fields)) => fields,
        Ok(value) => Map::from_iter([("value".to_owned(), value)]),
        Err(e) => Map::from_iter([("@error".to_owned(), e.to_string().into())]),
    };
    out.insert("@type".to_owned(), type_url.into());
    out.into()
}

/// Of Istio's own messages the arbiter knows the name table only.
fn known(name: &str) -> bool {
    let istio = name.starts_with("istio.") || name.starts_with("stats.");
    if istio { name.starts_with(NAME_TABLE) } else { !UNKNOWN.contains(name) }
}

fn tree(message: &DynamicMessage) -> Value {
    let descriptor = message.descriptor();
    let name = descriptor.full_name();
    match name.strip_prefix("google.protobuf.") {
        Some("Any") => {
            let text = message.get_field_by_name("type_url");
            let bytes = message.get_field_by_name("value");
            open(
                text.as_deref().and_then(Field::as_str).unwrap_or_default(),
                bytes.as_deref().and_then(Field::as_bytes).map_or(&[], |b| b),
            )
        }
        Some("FloatValue") => message.get_field_by_name("value").and_then(|v| v.as_f32()).map_or(Value::Null, shortest),
        Some("Duration" | "Timestamp" | "Struct" | "Empty" | "FieldMask") => well_known(message),
        Some(wrapper) if wrapper.ends_with("Value") => well_known(message),
        _ => message
            .fields()
            .filter(|(field, _)| known(field.full_name()))
            .map(|(field, value)| (json_name(&field), repeated(&field, value)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// The arbiter builds the name table's descriptor itself, without camel case.
fn json_name(field: &FieldDescriptor) -> String {
    let plain = field.full_name().starts_with(NAME_TABLE);
    if plain { field.name() } else { field.json_name() }.to_owned()
}

fn repeated(field: &FieldDescriptor, value: &Field) -> Value {
    match value {
        Field::List(items) => items.iter().map(|item| single(&field.kind(), item)).collect(),
        Field::Map(entries) => {
            let Kind::Message(entry) = field.kind() else { return Value::Null };
            let kind = entry.map_entry_value_field().kind();
            let pair = |(key, value): (&MapKey, &Field)| {
                let key = key_text(key);
                let value = if key == NOT_COMPARED { "*".into() } else { single(&kind, value) };
                (key, value)
            };
            entries.iter().map(pair).collect::<Map<_, _>>().into()
        }
        _ => single(&field.kind(), value),
    }
}

fn single(kind: &Kind, value: &Field) -> Value {
    match value {
        Field::Bool(v) => (*v).into(),
        Field::I32(v) => (*v).into(),
        Field::I64(v) => (*v).into(),
        Field::U32(v) => (*v).into(),
        Field::U64(v) => (*v).into(),
        Field::F32(v) => number(f64::from(*v)),
        Field::F64(v) => number(*v),
        Field::String(v) => v.as_str().into(),
        Field::Bytes(v) => STANDARD.encode(v).into(),
        Field::Message(v) => tree(v),
        Field::EnumNumber(number) => enum_name(kind, *number).map_or_else(|| (*number).into(), Value::String),
        Field::List(_) | Field::Map(_) => unreachable!("protobuf has no lists of lists"),
    }
}

fn enum_name(kind: &Kind, number: i32) -> Option<String> {
    let value = kind.as_enum()?.get_value(number)?;
    known(&format!("{}.{}", value.parent_enum().full_name(), value.name())).then(|| value.name().to_owned())
}

/// Python's `str` of the key.
fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(v) => if *v { "True" } else { "False" }.to_owned(),
        MapKey::I32(v) => v.to_string(),
        MapKey::I64(v) => v.to_string(),
        MapKey::U32(v) => v.to_string(),
        MapKey::U64(v) => v.to_string(),
        MapKey::String(v) => v.clone(),
    }
}

fn well_known(message: &DynamicMessage) -> Value {
    message
        .serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
        .unwrap_or_else(|e| json!({ "@error": e.to_string() }))
}

fn number(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

/// The fewest digits that are the same float on the wire: 0.1, not 0.10000000149011612.
fn shortest(value: f32) -> Value {
    number(value.to_string().parse().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::google::protobuf::{Duration, UInt64Value};

    use super::*;

    fn check(any: &Any, want: &Value) {
        assert_eq!(decode_any(any), *want);
    }

    #[test]
    fn well_known_types_follow_protobuf_json() {
        let url = "type.googleapis.com/google.protobuf.Duration";
        check(
            &wire::any::pack(&Duration { seconds: 1, nanos: 500_000_000 }),
            &json!({ "@type": url, "value": "1.500s" }),
        );
        let url = "type.googleapis.com/google.protobuf.UInt64Value";
        check(&wire::any::pack(&UInt64Value { value: 7 }), &json!({ "@type": url, "value": "7" }));
    }

    #[test]
    fn sixty_four_bits_are_numbers_and_enums_names() {
        use wire::envoy::config::core::v3::{SocketOption, socket_option};
        let option = SocketOption {
            level: 1 << 40,
            state: socket_option::SocketState::StateListening.into(),
            ..Default::default()
        };
        let url = "type.googleapis.com/envoy.config.core.v3.SocketOption";
        check(&wire::any::pack(&option), &json!({ "@type": url, "level": 1_u64 << 40, "state": "STATE_LISTENING" }));
    }

    #[test]
    fn a_type_that_the_arbiter_lacks_keeps_its_bytes() {
        let any = Any { type_url: "type.googleapis.com/stats.PluginConfig".into(), value: vec![8, 1].into() };
        check(&any, &json!({ "@type": any.type_url, "@bytes": "CAE=" }));
        check(&Any::default(), &json!({ "@type": "", "@bytes": "" }));
        let alpn = "type.googleapis.com/istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig";
        check(&Any { type_url: alpn.into(), value: vec![].into() }, &json!({ "@type": alpn, "@bytes": "" }));
    }

    #[test]
    fn broken_bytes_are_an_error_in_the_tree() {
        let any = Any { value: vec![0xff].into(), ..wire::any::pack(&Duration::default()) };
        assert!(decode_any(&any)["@error"].is_string());
    }

    #[test]
    fn name_table_keeps_its_field_names() {
        use wire::istio::networking::nds::v1::{NameTable, name_table::NameInfo};
        let info = NameInfo { alt_hosts: vec!["a".into()], ..Default::default() };
        let table = NameTable { table: [("h".to_owned(), info)].into() };
        assert!(!table.encode_to_vec().is_empty());
        assert_eq!(decode_any(&wire::any::pack(&table))["table"]["h"], json!({ "alt_hosts": ["a"] }));
    }
}

//! Random messages of the types that proxies receive, well-known types kept within what JSON can say.

use std::collections::HashMap;

use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use wire::google::protobuf::Any;

use testkit::random::Random;

/// Beyond this, messages stay empty.
const DEPTH: usize = 5;

const TYPES: [&str; 16] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.listener.v3.Listener",
    "envoy.config.route.v3.RouteConfiguration",
    "envoy.config.core.v3.TypedExtensionConfig",
    "envoy.extensions.transport_sockets.tls.v3.Secret",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "envoy.extensions.filters.http.rbac.v3.RBAC",
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
    "istio.networking.nds.v1.NameTable",
    "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
    "google.protobuf.Struct",
    "google.protobuf.StringValue",
];

pub(crate) fn any(random: &mut Random, depth: usize) -> Any {
    let name = random.pick(&TYPES);
    if random.one_in(20) {
        return Any { type_url: "type.googleapis.com/stats.PluginConfig".into(), value: vec![8, 1].into() };
    }
    let descriptor = wire::pool().get_message_by_name(name).expect("the pool has it");
    Any {
        type_url: format!("type.googleapis.com/{name}"),
        value: message(random, &descriptor, depth).encode_to_vec().into(),
    }
}

fn message(random: &mut Random, descriptor: &MessageDescriptor, depth: usize) -> DynamicMessage {
    let mut out = DynamicMessage::new(descriptor.clone());
    match descriptor.full_name() {
        "google.protobuf.Any" => out.transcode_from(&any(random, depth + 1)).expect("an Any is an Any"),
        "google.protobuf.Duration" => {
            out.set_field_by_name("seconds", Value::I64(random.below(1000) as i64));
            out.set_field_by_name("nanos", Value::I32(random.pick(&[0, 500_000_000, 1_000, 7])));
        }
        "google.protobuf.Timestamp" => {
            out.set_field_by_name("seconds", Value::I64(1_700_000_000 + random.below(1_000_000) as i64));
        }
        "google.protobuf.FieldMask" => {
            out.set_field_by_name("paths", Value::List(vec![Value::String("some_field.other".into())]));
        }
        _ if depth < DEPTH => {
            // Small messages are filled, large ones in part, or the trees would explode.
            let sparse = descriptor.fields().len() / 8 + depth / 2;
            for field in descriptor.fields() {
                if random.one_in(sparse.max(1)) {
                    let value = any_number(random, &field, depth);
                    out.set_field(&field, value);
                }
            }
        }
        _ => {}
    }
    out
}

fn any_number(random: &mut Random, field: &FieldDescriptor, depth: usize) -> Value {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { unreachable!("a map's entries are messages") };
        let (key, value) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        let pair = |random: &mut Random| (map_key(random, &key), single(random, &value, depth));
        Value::Map((0..random.below(3)).map(|_| pair(random)).collect::<HashMap<_, _>>())
    } else if field.is_list() {
        Value::List((0..random.below(3)).map(|_| single(random, &field.kind(), depth)).collect())
    } else {
        single(random, &field.kind(), depth)
    }
}

fn map_key(random: &mut Random, kind: &Kind) -> MapKey {
    match kind {
        Kind::Bool => MapKey::Bool(random.one_in(2)),
        Kind::Int32 => MapKey::I32(random.below(9) as i32),
        Kind::Int64 => MapKey::I64(random.below(9) as i64),
        Kind::Uint32 => MapKey::U32(random.below(9) as u32),
        Kind::Uint64 => MapKey::U64(random.below(9) as u64),
        _ => MapKey::String(text(random)),
    }
}

fn single(random: &mut Random, kind: &Kind, depth: usize) -> Value {
    match kind {
        Kind::Double => Value::F64(random.pick(&[0.5, -2.25, 100.0, 0.001])),
        Kind::Float => Value::F32(random.pick(&[0.5, -2.25, 100.0])),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(random.number() as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(random.number() as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(random.number() as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(random.number()),
        Kind::Bool => Value::Bool(random.one_in(2)),
        Kind::String => Value::String(text(random)),
        Kind::Bytes => Value::Bytes(random.number().to_be_bytes().to_vec().into()),
        Kind::Message(descriptor) => Value::Message(message(random, descriptor, depth + 1)),
        Kind::Enum(descriptor) => {
            let numbers: Vec<i32> = descriptor.values().map(|value| value.number()).chain([999]).collect();
            Value::EnumNumber(random.pick(&numbers))
        }
    }
}

fn text(random: &mut Random) -> String {
    let words = ["", "a", "zürich", "😀", "a b\n", "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "10.0.0.1", "\"q\\"];
    random.pick(&words).to_owned()
}

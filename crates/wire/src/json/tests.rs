//! JSON both ways, its errors, and hostile input.

use proptest::prelude::*;
use prost::Message;
use serde_json::{Value, json};

use super::*;
use crate::any::pack;
use crate::google::protobuf;

/// Every field here is in canonical form, so that a round trip gives the same text.
fn round(value: &Value) {
    let any = from_value(value).unwrap_or_else(|e| panic!("{e}\n{value:#}"));
    assert_eq!(&to_value(&any), value);
}

fn typed(name: &str, mut fields: Value) -> Value {
    fields["@type"] = format!("type.googleapis.com/{name}").into();
    fields
}

fn error(name: &str, fields: Value) -> String {
    from_value(&typed(name, fields)).expect_err("must be rejected").to_string()
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

#[test]
fn a_cluster_with_every_special_json_form() {
    round(&typed(
        CLUSTER,
        json!({
            "name": "outbound|80||a.b",
            "type": "EDS",
            "connectTimeout": "0.250s",
            "circuitBreakers": {"thresholds": [{"maxConnections": 4_294_967_295_u32, "retryBudget": {"budgetPercent": {"value": 12.5}}}]},
            "outlierDetection": {"maxEjectionPercent": 0, "consecutive5xx": 3},
            "upstreamBindConfig": {"sourceAddress": {"address": "127.0.0.6", "portValue": 0}},
            "metadata": {"filterMetadata": {"istio": {"a": [1, 1.5, null, true, "x", {"b": {}}], "z": -3}}},
            "typedExtensionProtocolOptions": {"o": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicitHttpConfig": {"http2ProtocolOptions": {"connectionKeepalive": {"interval": "30s"}}},
            }},
        }),
    ));
}

#[test]
fn well_known_types_inside_an_any_are_under_value() {
    for (name, value) in [
        ("Duration", json!("1.500s")),
        ("Timestamp", json!("2026-01-31T12:00:00Z")),
        ("StringValue", json!("x")),
        ("UInt64Value", json!("18446744073709551615")),
        ("Int64Value", json!("-9223372036854775808")),
        ("BoolValue", json!(true)),
        ("DoubleValue", json!("-Infinity")),
        ("FloatValue", json!(0.1)),
        ("BytesValue", json!("AAH/")),
        ("Struct", json!({"a": {"b": [1, 2.5]}})),
        ("ListValue", json!([null, {}])),
        ("Value", json!(null)),
        ("Any", json!({"@type": "type.googleapis.com/google.protobuf.Duration", "value": "2s"})),
        ("Any", json!({})),
    ] {
        round(&typed(&format!("google.protobuf.{name}"), json!({"value": value})));
    }
    round(&typed("google.protobuf.Empty", json!({})));
    assert!(from_value(&typed("google.protobuf.Empty", json!({"value": {}}))).is_ok());
}

#[test]
fn alternative_input_forms_are_accepted() {
    let canonical = from_value(&typed(
        CLUSTER,
        json!({"altStatName": "s", "connectTimeout": "1.500s", "type": "EDS",
        "perConnectionBufferLimitBytes": 7, "metadata": {"typedFilterMetadata": {}}}),
    ))
    .unwrap();
    let other = from_value(&typed(
        CLUSTER,
        json!({"alt_stat_name": "s", "connect_timeout": "1.5s", "type": 3,
        "per_connection_buffer_limit_bytes": "7", "metadata": {"typed_filter_metadata": null}, "name": null}),
    ))
    .unwrap();
    assert_eq!(canonical, other);
}

#[test]
fn errors_name_the_path() {
    for (fields, expected) in [
        (json!({"nmae": "x"}), "(top): envoy.config.cluster.v3.Cluster has no field \"nmae\""),
        (
            json!({"circuitBreakers": {"thresholds": [{}, {"maxRetries": -1}]}}),
            "circuitBreakers.thresholds[1].maxRetries: expected an integer from 0 to 4294967295, found -1",
        ),
        (
            json!({"typedExtensionProtocolOptions": {"o": {"value": 1}}}),
            "typedExtensionProtocolOptions[\"o\"]: \"@type\" is missing; write it like type.googleapis.com/package.Message",
        ),
        (
            json!({"typedExtensionProtocolOptions": {"o": {"@type": "x/a.B", "field": 1}}}),
            "typedExtensionProtocolOptions[\"o\"].@type: the type \"x/a.B\" is not known here; only its bytes can be given, as \"value\" in base64",
        ),
        (json!({"connectTimeout": 5}), "connectTimeout: expected a duration such as \"1.5s\", found 5"),
        (json!({"name": ["a"]}), "name: expected a string, found a list"),
        (
            json!({"lbSubsetConfig": []}),
            "lbSubsetConfig: expected an object (envoy.config.cluster.v3.Cluster.LbSubsetConfig), found a list",
        ),
        (json!({"filters": [null]}), "filters[0]: expected a value, found null"),
        (
            json!({"altStatName": "a", "alt_stat_name": "a"}),
            "(top): envoy.config.cluster.v3.Cluster has the field alt_stat_name twice, under two spellings",
        ),
        (
            json!({"type": "EDS", "clusterType": {}}),
            "(top): envoy.config.cluster.v3.Cluster takes one of its cluster_discovery_type fields, and type is not the first one here",
        ),
    ] {
        assert_eq!(error(CLUSTER, fields), expected);
    }
    assert!(error(CLUSTER, json!({"type": "EDSX"})).starts_with(
        "type: expected a value of envoy.config.cluster.v3.Cluster.DiscoveryType (STATIC, STRICT_DNS, LOGICAL_DNS, EDS,"
    ));
    assert_eq!(from_value(&json!({"name": "x"})).unwrap_err().problem, Problem::NoType);
    assert_eq!(from_value(&json!(7)).unwrap_err().path, "(top)");
}

#[test]
fn rejects_numbers_out_of_range() {
    let wrap =
        |name: &str, value: Value| from_value(&typed(&format!("google.protobuf.{name}"), json!({"value": value})));
    for (name, good) in
        [("UInt32Value", json!("4294967295")), ("Int32Value", json!(-7.0)), ("Int32Value", json!("1e3"))]
    {
        assert!(wrap(name, good.clone()).is_ok(), "{name} {good}");
    }
    for (name, bad) in [
        ("UInt32Value", json!(4_294_967_296_u64)),
        ("Int32Value", json!(1.5)),
        ("Int64Value", json!("9223372036854775808")),
        ("UInt64Value", json!(-1)),
        ("FloatValue", json!(1e39)),
        ("DoubleValue", json!("1e999")),
        ("BoolValue", json!("true")),
        ("StringValue", json!(1)),
        ("BytesValue", json!("%%")),
    ] {
        assert!(wrap(name, bad.clone()).is_err(), "{name} {bad}");
    }
}

#[test]
fn an_any_of_unknown_type_round_trips() {
    round(&json!({"@type": "example.com/acme.Filter", "value": "CgF4/w=="}));
    round(&typed(
        "envoy.config.core.v3.TypedExtensionConfig",
        json!({
            "name": "acme", "typedConfig": {"@type": "example.com/acme.Filter", "value": "AP8="},
        }),
    ));
}

#[test]
fn an_any_that_does_not_decode_round_trips() {
    let broken = Any {
        type_url: "type.googleapis.com/google.protobuf.StringValue".to_owned(),
        value: vec![0x0a, 2, 0xff, 0xfe].into(),
    };
    let shown = to_value(&broken);
    assert_eq!(shown["@bytes"], "CgL//g==");
    assert_eq!(from_value(&shown).unwrap(), broken);
}

#[test]
fn key_order_does_not_affect_the_bytes() {
    let table = |names: &mut dyn Iterator<Item = u32>| -> Any {
        let names: serde_json::Map<_, _> =
            names.map(|n| (format!("host-{n}"), json!({"ips": [format!("10.0.0.{n}")]}))).collect();
        from_value(&typed("istio.networking.nds.v1.NameTable", json!({"table": names}))).unwrap()
    };
    let (up, down) = (table(&mut (0..200)), table(&mut (0..200).rev()));
    assert_eq!(up, down);
    let generated = crate::istio::networking::nds::v1::NameTable::decode(up.value.clone()).unwrap();
    assert_eq!(pack(&generated), up);
}

/// prost writes `cluster_type` (38) at the position of its oneof, which begins with `type` (2).
#[test]
fn a_oneof_is_encoded_where_the_generated_type_encodes_it() {
    let any = from_value(&typed(
        CLUSTER,
        json!({"name": "n", "clusterType": {"name": "c"}, "altStatName": "a", "connectTimeout": "1s"}),
    ))
    .unwrap();
    let generated = crate::envoy::config::cluster::v3::Cluster::decode(any.value.clone()).unwrap();
    assert_eq!(pack(&generated), any);
}

#[test]
fn a_message_has_no_type_member() {
    let request = crate::istio::v1::auth::IstioCertificateRequest {
        csr: "pem".to_owned(),
        validity_duration: 86_400,
        metadata: None,
    };
    assert_eq!(message_to_value(&request), json!({"csr": "pem", "validityDuration": "86400"}));
    assert_eq!(message_to_value(&protobuf::Duration { seconds: 1, nanos: 0 }), "1s");
}

#[test]
fn rejects_deeply_nested_json() {
    let one = |key: &str, value| Value::Object(serde_json::Map::from_iter([(key.to_owned(), value)]));
    let of_type = |name: &str, value| {
        let mut fields = one("value", value);
        fields["@type"] = format!("type.googleapis.com/google.protobuf.{name}").into();
        fields
    };
    let (mut list, mut object, mut any) = (json!(1), json!(1), json!({}));
    for _ in 0..10_000 {
        list = Value::Array(vec![list]);
        object = one("a", object);
        any = of_type("Any", any);
    }
    for deep in [of_type("Value", list), of_type("Value", object), any] {
        assert_eq!(from_value(&deep).unwrap_err().problem, Problem::TooDeep);
        dismantle(deep);
    }
}

/// serde_json drops a tree recursively, which would overflow the stack in a depth test.
fn dismantle(mut value: Value) {
    while let Some(inner) = match &mut value {
        Value::Array(items) => items.pop(),
        Value::Object(fields) => fields.remove("a").or_else(|| fields.remove("value")),
        _ => None,
    } {
        value = inner;
    }
}

#[test]
fn encoded_json_decodes_to_the_generated_type() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    let deepest = (1..60)
        .rev()
        .find_map(|levels| from_value(&typed("google.protobuf.Struct", json!({"value": nested(levels)}))).ok())
        .unwrap();
    assert!(protobuf::Struct::decode(deepest.value.clone()).is_ok());
}

#[test]
fn nested_anys_are_expanded_up_to_the_limit_and_kept_beyond() {
    let tower = (0..2_000).fold(Any::default(), |inner, _| pack(&inner));
    let shown = to_value(&tower);
    assert!(shown.to_string().contains("@bytes"));
    let again = from_value(&shown).unwrap();
    assert_eq!(again, tower);
}

/// Half of the usual thread stack, without optimisation.
#[test]
fn the_maximum_depth_fits_a_small_stack() {
    let work = || {
        let lists = (0..49).fold(protobuf::Value::default(), |inner, _| protobuf::Value {
            kind: Some(protobuf::value::Kind::ListValue(protobuf::ListValue { values: vec![inner] })),
        });
        let shown = to_value(&(0..38).fold(pack(&lists), |inner, _| pack(&inner)));
        assert!(!shown.to_string().contains("@bytes"));
        assert_eq!(from_value(&shown).unwrap_err().problem, Problem::TooDeep);
        let readable = (0..19).fold(json!(1), |inner, _| json!({"a": [inner]}));
        assert!(from_value(&typed("google.protobuf.Value", json!({"value": readable}))).is_ok());
    };
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(work).unwrap().join().unwrap();
}

#[test]
fn no_message_uses_groups_or_field_masks() {
    let group = crate::pool()
        .all_messages()
        .flat_map(|m| m.fields().collect::<Vec<_>>())
        .find(prost_reflect::FieldDescriptor::is_group);
    assert!(group.is_none(), "the reader does not write groups: {group:?}");
    assert!(
        crate::pool().get_message_by_name("google.protobuf.FieldMask").is_none(),
        "its JSON form is not written here"
    );
}

proptest! {
    /// Arbitrary bytes are converted without a panic, and what can be read back converts to the same JSON.
    #[test]
    fn arbitrary_bytes_convert_to_json(which in 0..6_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let names = ["google.protobuf.Struct", "google.protobuf.Any", CLUSTER, "envoy.config.listener.v3.Listener", "google.protobuf.Timestamp", "google.protobuf.Duration"];
        let shown = to_value(&Any { type_url: format!("type.googleapis.com/{}", names[which]), value: bytes.into() });
        if let Ok(again) = from_value(&shown) {
            prop_assert_eq!(to_value(&again), shown);
        }
    }
}

#[test]
fn a_patch_ignores_unknown_fields_and_enum_values() {
    use crate::envoy::config::cluster::v3::Cluster;
    let fields = serde_json::json!({
        "name": "a", "no_such_field": {"deep": [1]}, "lb_policy": "NO_SUCH_POLICY", "connectTimeout": "1s",
    });
    let bytes =
        encode_patch::<Cluster>(fields.as_object().expect("an object"), PatchMode::Whole).expect("it is lenient");
    let cluster = Cluster::decode(&*bytes).expect("a cluster");
    assert_eq!((cluster.name.as_str(), cluster.lb_policy), ("a", 0));
    for wrong in [
        serde_json::json!({"connect_timeout": "soon"}),
        serde_json::json!({"name": 7}),
        serde_json::json!({"filters": [{"typed_config": {"@type": "type.googleapis.com/example.None", "a": 1}}]}),
        serde_json::json!({"lb_policy": {}}),
    ] {
        encode_patch::<Cluster>(wrong.as_object().expect("an object"), PatchMode::Whole).expect_err(&wrong.to_string());
    }
}

#[test]
fn names_that_a_patch_ignores_are_listed_with_what_was_possible() {
    use crate::envoy::config::listener::v3::Filter;
    let fields = serde_json::json!({"name": "a", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefx": "a", "codecType": "HTTP9", "statPrefix": "b",
        "http_filters": [{"name": "x", "oops": {"deep": 1}}],
        "route_config": {"virtual_hosts": [{"typed_per_filter_config": {"k": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "nme": "a"}}}]},
        "local_reply_config": {"body_format": {"json_format": {"anything": {"goes": 1}}}},
    }});
    let found = unknown_names::<Filter>(fields.as_object().expect("an object"));
    let names: Vec<_> =
        found.iter().map(|it| (it.path.as_str(), it.owner.rsplit('.').next().unwrap_or_default())).collect();
    assert_eq!(
        names,
        [
            ("typed_config.codecType", "CodecType"),
            ("typed_config.http_filters[0].oops", "HttpFilter"),
            ("typed_config.route_config.virtual_hosts[0].typed_per_filter_config[\"k\"].nme", "Cluster"),
            ("typed_config.stat_prefx", "HttpConnectionManager"),
        ]
    );
    assert!(found[3].known.contains(&"stat_prefix".to_owned()));
}

#[test]
fn a_merged_duration_replaces_the_original() {
    use crate::envoy::config::cluster::v3::Cluster;
    use crate::google::protobuf::Duration;
    let mut cluster = Cluster { connect_timeout: Some(Duration { seconds: 1, nanos: 500 }), ..Cluster::default() };
    let fields = serde_json::json!({"connect_timeout": "2s"});
    let bytes = encode_patch::<Cluster>(fields.as_object().expect("an object"), PatchMode::Merged).expect("a patch");
    cluster.merge(&*bytes).expect("well-formed");
    assert_eq!(cluster.connect_timeout, Some(Duration { seconds: 2, nanos: 0 }));
}

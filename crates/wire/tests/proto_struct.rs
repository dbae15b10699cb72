//! Encoded Structs, decoded and sorted, compared with prost.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::encode_varint;
use serde_json::json;
use wire::envoy::config::core::v3::Node;
use wire::google::protobuf::{ListValue, Struct, Value, value::Kind};
use wire::proto_struct::{self, Error, StructView, ValueView};

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: &str) -> Value {
    value(Kind::StringValue(text.to_owned()))
}

fn of<const N: usize>(fields: [(&str, Value); N]) -> Struct {
    Struct { fields: fields.map(|(name, value)| (name.to_owned(), value)).into() }
}

fn field(key: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![key];
    encode_varint(content.len() as u64, &mut out);
    [&out, content].concat()
}

fn entry(name: &str, value: &Value) -> Vec<u8> {
    field(0x0a, &[field(0x0a, name.as_bytes()), field(0x12, &value.encode_to_vec())].concat())
}

/// Sorting and decoding give what prost gives, or fail where prost does.
fn check_against_prost(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let theirs = Struct::decode(bytes.clone()).ok();
    let ours = proto_struct::sort_names(&bytes).ok();
    assert_eq!(ours, theirs.as_ref().map(|it| it.encode_to_vec().into()), "{bytes:x?}");
    assert_eq!(proto_struct::to_json(&bytes).ok(), theirs.as_ref().map(plain), "{bytes:x?}");
    let viewed = ours.as_ref().map(|sorted| read_view(StructView::new(sorted).fields()));
    assert_eq!(viewed, theirs.as_ref().map(plain), "{bytes:x?}");
    for (name, value) in theirs.iter().flat_map(|it| &it.fields) {
        let text = value.kind.as_ref().and_then(|it| if let Kind::StringValue(it) = it { Some(&**it) } else { None });
        assert_eq!(proto_struct::string_field(&bytes, name), Ok(text), "{name}: {bytes:x?}");
    }
}

fn plain(message: &Struct) -> serde_json::Value {
    message.fields.iter().map(|(name, value)| (name.clone(), plain_value(value))).collect()
}

fn plain_value(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => json!(null),
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::BoolValue(truth)) => json!(truth),
        Some(Kind::StructValue(inner)) => plain(inner),
        Some(Kind::ListValue(list)) => list.values.iter().map(plain_value).collect(),
    }
}

/// All values of a view.
fn read_view<'a>(fields: impl Iterator<Item = (&'a str, ValueView<'a>)>) -> serde_json::Value {
    fields.map(|(name, item)| (name.to_owned(), read_value(item))).collect()
}

fn read_value(item: ValueView<'_>) -> serde_json::Value {
    let scalar = item.text().map(|text| json!(text)).or_else(|| item.boolean().map(|truth| json!(truth)));
    let json = item.json();
    assert_eq!(item.is_null(), json.is_null() && item.number().is_none());
    match scalar.or_else(|| item.number().map(|number| json!(number))) {
        Some(scalar) => scalar,
        None if json.is_object() => read_view(item.fields()),
        None => json,
    }
}

fn everything() -> Struct {
    let labels = of([("app", text("cart")), ("", value(Kind::BoolValue(false)))]);
    let list = ListValue { values: vec![value(Kind::NullValue(0)), Value::default(), value(Kind::BoolValue(true))] };
    of([
        ("LABELS", value(Kind::StructValue(labels))),
        ("LIST", value(Kind::ListValue(list))),
        ("NOTHING", Value::default()),
        ("EMPTY", value(Kind::StructValue(Struct::default()))),
        ("NULL", value(Kind::NullValue(0))),
        ("NEGATIVE", value(Kind::NullValue(-1))),
        ("NUMBER", value(Kind::NumberValue(-1.5))),
        ("INFINITE", value(Kind::NumberValue(f64::INFINITY))),
        ("LONG", text(&"é".repeat(9_000))),
        ("SHORT", text(&"x".repeat(127))),
        ("NOT SO SHORT", text(&"x".repeat(128))),
    ])
}

#[test]
fn reads_every_kind_of_value() {
    check_against_prost(&everything().encode_to_vec());
    check_against_prost(&[]);
}

#[test]
fn sorted_input_is_returned_without_a_copy() {
    let bytes = Bytes::from(of([("A", text("x")), ("B", value(Kind::StructValue(Struct::default())))]).encode_to_vec());
    assert_eq!(proto_struct::sort_names(&bytes).unwrap().as_ptr(), bytes.as_ptr());
}

#[test]
fn names_are_sorted_at_every_level() {
    let backwards =
        |fields: &Struct| -> Vec<u8> { fields.fields.iter().rev().flat_map(|(n, v)| entry(n, v)).collect() };
    let inner = backwards(&everything());
    check_against_prost(&inner);
    for wrapped in [field(0x2a, &inner), field(0x32, &field(0x0a, &field(0x2a, &inner)))] {
        check_against_prost(&field(0x0a, &[field(0x0a, b"DEEP"), field(0x12, &wrapped)].concat()));
    }
}

#[test]
fn the_last_of_duplicate_names_wins() {
    let twice =
        [entry("B", &text("1")), entry("A", &text("2")), entry("B", &text("3")), entry("A", &text(""))].concat();
    check_against_prost(&twice);
    assert_eq!(proto_struct::to_json(&twice), Ok(json!({"A": "", "B": "3"})));
    check_against_prost(&[entry("A", &text("1")), entry("A", &Value::default())].concat());
}

#[test]
fn non_canonical_encodings_are_normalised() {
    let one = value(Kind::StructValue(of([("x", text("1")), ("y", text("2"))]))).encode_to_vec();
    let two = value(Kind::StructValue(of([("x", text("3"))]))).encode_to_vec();
    let list = value(Kind::ListValue(ListValue { values: vec![text("1")] })).encode_to_vec();
    let name = field(0x0a, b"A");
    let with = |parts: &[&[u8]]| check_against_prost(&field(0x0a, &parts.concat()));
    with(&[&field(0x12, &one), &name]);
    with(&[&name, &field(0x12, &one), &field(0x12, &two)]);
    with(&[&name, &field(0x12, &[&list[..], &list].concat())]);
    with(&[&name, &field(0x12, &[&list[..], &one, &two].concat())]);
    with(&[&field(0x0a, b"B"), &name, &field(0x12, &list)]);
    with(&[&name, &field(0x12, &[])]);
    with(&[&field(0x0a, &[]), &field(0x12, &two)]);
    with(&[&name, &[0x92, 0x00, 0x00]]);
    with(&[&name, &[0x12, 0x82, 0x00, 0x20, 0x02]]);
    with(&[&name, &field(0x12, &[0x08, 0xff, 0xff, 0xff, 0xff, 0x1f])]);
    with(&[&name, &field(0x12, &one), &field(0x1a, b"unknown"), &[0x23, 0x08, 0x01, 0x24]]);
}

#[test]
fn rejects_malformed_bytes() {
    let bytes = everything().encode_to_vec();
    (0..bytes.len().min(400)).for_each(|cut| check_against_prost(&bytes[..cut]));
    let bad = |bytes: &[u8]| proto_struct::to_json(bytes).unwrap_err();
    for wrong in [&[0x0a, 0xff][..], &[0x08, 0x01], &[0x02, 0x00], &[0x0f, 0x00], &[0x0c], &[0xff; 11]] {
        assert_eq!(bad(wrong), Error::Malformed, "{wrong:x?}");
        check_against_prost(wrong);
    }
    let not_text = field(0x0a, &field(0x0a, &[0xff]));
    assert_eq!(bad(&not_text), Error::NotText);
    check_against_prost(&not_text);
    check_against_prost(&field(0x0a, &field(0x12, &field(0x1a, &[0xc3]))));
}

#[test]
fn the_depth_limit_matches_prost_for_node_metadata() {
    // An entry, a Value and a Struct are three levels.
    let deep = |levels: usize| {
        (0..levels).fold(Vec::new(), |inner, at| field([0x0a, 0x12, 0x2a][(levels - 1 - at) % 3], &inner))
    };
    assert!(proto_struct::to_json(&deep(98)).is_ok() && proto_struct::sort_names(&deep(98).into()).is_ok());
    for levels in [99, 3_000] {
        assert_eq!(proto_struct::to_json(&deep(levels)), Err(Error::TooDeep));
        assert_eq!(proto_struct::sort_names(&deep(levels).into()), Err(Error::TooDeep));
    }
}

#[test]
fn node_metadata_as_bytes_has_the_same_wire_format() {
    let metadata = everything().encode_to_vec();
    let bytes = [field(0x0a, b"id"), field(0x1a, &metadata)].concat();
    let node = Node::decode(&bytes[..]).unwrap();
    assert_eq!(node.metadata.as_deref(), Some(&metadata[..]));
    assert_eq!(node.encode_to_vec(), bytes);
    let node = Node { metadata: Some(of([("A", text("x"))]).encode_to_vec().into()), ..Node::default() };
    assert_eq!(wire::json::message_to_value(&node), json!({"metadata": {"A": "x"}}));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::default()),
        any::<i32>().prop_map(|it| value(Kind::NullValue(it))),
        (-1e9..1e9).prop_map(|it: f64| value(Kind::NumberValue(it))),
        "[a-c]{0,3}".prop_map(|it| text(&it)),
        any::<bool>().prop_map(|it| value(Kind::BoolValue(it))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = proptest::collection::btree_map("[a-c]{0,2}", inner.clone(), 0..4);
        prop_oneof![
            fields.prop_map(|fields| value(Kind::StructValue(Struct { fields }))),
            proptest::collection::vec(inner, 0..4).prop_map(|values| value(Kind::ListValue(ListValue { values }))),
        ]
    })
}

fn entries() -> impl Strategy<Value = Vec<u8>> {
    let entry = ("[a-c]{0,2}", values()).prop_map(|(name, value)| entry(&name, &value));
    proptest::collection::vec(entry, 1..8).prop_map(|entries| entries.concat())
}

proptest! {
    #[test]
    fn random_entry_orders_match_prost(bytes in entries()) {
        check_against_prost(&bytes);
    }

    /// More is rejected than by prost, which accepts entries of any wire type.
    #[test]
    fn corrupted_bytes_are_rejected_or_match_prost(
        mut bytes in entries(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let sorted = proto_struct::sort_names(&bytes.clone().into());
        prop_assert_eq!(sorted.is_ok(), proto_struct::to_json(&bytes).is_ok());
        if sorted.is_ok() {
            check_against_prost(&bytes);
        }
    }
}

/// A decoded value takes fifty times its encoded size.
#[test]
fn rejects_too_many_values_at_any_level() {
    let list = |count| Value { kind: Some(Kind::ListValue(ListValue { values: vec![Value::default(); count] })) };
    let of = |value: Value| Struct { fields: [("LABELS".to_owned(), value)].into() };
    let fields = |count: usize| Struct { fields: (0..count).map(|n| (n.to_string(), Value::default())).collect() };
    let inside = |count| of(Value { kind: Some(Kind::StructValue(fields(count))) });
    let sorted = |whole: Struct| proto_struct::sort_names(&whole.encode_to_vec().into()).map(|_| ());
    assert_eq!([sorted(fields(10_000)), sorted(inside(9_999)), sorted(of(list(9_999)))], [Ok(()); 3]);
    for too_many in [fields(10_001), inside(10_000), of(list(10_000))] {
        assert_eq!(sorted(too_many), Err(Error::TooMany));
    }
    let repeated = Bytes::from([0x0a, 0].repeat(10_001));
    assert_eq!(proto_struct::sort_names(&repeated), Err(Error::TooMany), "also of one name");
}

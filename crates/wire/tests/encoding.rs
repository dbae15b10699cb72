//! Reverse encoding compared with prost's.

use proptest::prelude::*;
use prost::Message;
use protobuf::Encode;
use wire::envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff};
use wire::envoy::r#type::v3::Percent;
use wire::google::protobuf::{Duration, FileDescriptorSet, ListValue, Struct, Value, value::Kind};

fn check_against_prost(message: &(impl Message + Encode + std::fmt::Debug)) {
    assert_eq!(protobuf::encode(message), message.encode_to_vec(), "{message:?}");
    let mut field = Vec::new();
    prost::encoding::message::encode(17, message, &mut field);
    assert_eq!(protobuf::field(17, message), field, "{message:?}");
}

#[test]
fn encodes_every_descriptor() {
    let files = wire::pool().file_descriptor_protos().map(Message::encode_to_vec);
    let set: Vec<u8> = files.flat_map(|file| [vec![0x0a], prost_len(file.len()), file].concat()).collect();
    let set = FileDescriptorSet::decode(&set[..]).expect("the pool's own files");
    assert!(set.file.len() > 100);
    check_against_prost(&set);
}

fn prost_len(len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(len as u64, &mut out);
    out
}

#[test]
fn encodes_numbers_of_all_kinds() {
    let interval = |seconds, nanos| Some(Duration { seconds, nanos });
    check_against_prost(&RetryPolicy {
        retriable_status_codes: vec![0, 127, 128, u32::MAX],
        host_selection_retry_max_attempts: -5,
        retry_back_off: Some(RetryBackOff { base_interval: interval(-1, -1), max_interval: interval(i64::MAX, 0) }),
        ..RetryPolicy::default()
    });
    for value in [0.0, -0.0, 1.5, f64::INFINITY] {
        check_against_prost(&Percent { value });
    }
    check_against_prost(&RetryPolicy::default());
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(None),
        Just(Some(Kind::NullValue(0))),
        any::<f64>().prop_filter("comparable", |number| !number.is_nan()).prop_map(|it| Some(Kind::NumberValue(it))),
        any::<bool>().prop_map(|it| Some(Kind::BoolValue(it))),
        ".{0,200}".prop_map(|it| Some(Kind::StringValue(it))),
    ];
    let leaf = leaf.prop_map(|kind| Value { kind });
    leaf.prop_recursive(6, 200, 8, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..8).prop_map(|values| Kind::ListValue(ListValue { values }));
        let fields = prop::collection::btree_map(".{0,9}", inner, 0..8);
        let structure = fields.prop_map(|fields| Kind::StructValue(Struct { fields }));
        prop_oneof![list, structure].prop_map(|kind| Value { kind: Some(kind) })
    })
}

proptest! {
    #[test]
    fn encodes_random_values(value in value()) {
        check_against_prost(&value);
        check_against_prost(&Struct { fields: [(String::new(), value.clone()), ("x".to_owned(), value)].into() });
    }
}

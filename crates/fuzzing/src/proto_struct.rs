//! Encoded Structs: sorted and decoded as prost does, or rejected where prost rejects them.

use bytes::Bytes;
use prost::Message;
use serde_json::{Value as Json, json};
use wire::google::protobuf::{Struct, Value, value::Kind};
use wire::proto_struct::{self, Error, StructView};

pub fn proto_struct(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let prost = Struct::decode(message.clone());
    let sorted = match proto_struct::sort_names(&message) {
        // Our own limits.
        Err(Error::TooMany | Error::TooDeep) => return,
        Err(Error::Malformed | Error::NotText) => return check_rejected(prost),
        Ok(sorted) => sorted,
    };
    let prost = prost.expect("what can be sorted can be decoded");
    assert_eq!(sorted, prost.encode_to_vec(), "the encoding is prost's");
    assert_eq!(proto_struct::sort_names(&sorted).as_ref(), Ok(&sorted), "sorted once is sorted");
    let plain: Json = prost.fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
    assert_eq!(proto_struct::to_json(&message).as_ref(), Ok(&plain));
    let view = StructView::new(&sorted);
    let viewed: Json = view.fields().map(|(name, value)| (name.to_owned(), value.json())).collect();
    assert_eq!(viewed, plain);
    for (name, value) in &prost.fields {
        let text = if let Some(Kind::StringValue(text)) = &value.kind { Some(&**text) } else { None };
        assert_eq!(proto_struct::string_field(&message, name), Ok(text), "{name:?}");
    }
}

/// prost does not check the wire type of map entries, so that it decodes some malformed messages too. What it makes of them is well-formed.
fn check_rejected(prost: Result<Struct, prost::DecodeError>) {
    if let Ok(prost) = prost {
        let again = proto_struct::sort_names(&prost.encode_to_vec().into());
        assert!(!matches!(again, Err(Error::Malformed | Error::NotText)), "prost decodes it");
    }
}

fn plain(value: &Value) -> Json {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::StructValue(inner)) => {
            inner.fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        Some(Kind::ListValue(list)) => list.values.iter().map(plain).collect(),
    }
}

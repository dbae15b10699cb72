//! The metadata of nodes as bytes, with the names in order, so that nodes which are alike are so in memory. Written from the end, when the length of what
//! a message holds is known: counted ahead, it is counted again for each message around it.

use wire::google::protobuf::{ListValue, Struct, Value, value::Kind};

const VARINT: u8 = 0;
const FIXED: u8 = 1;
const DELIMITED: u8 = 2;

/// As prost encodes it.
pub(crate) fn encoded(structure: &Struct) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    write_struct(&mut out, structure);
    out.reverse();
    out
}

fn write_struct(out: &mut Vec<u8>, structure: &Struct) {
    for (name, value) in structure.fields.iter().rev() {
        let end = out.len();
        if value.kind.is_some() {
            let end = out.len();
            write_value(out, value);
            close(out, 2, end);
        }
        if !name.is_empty() {
            write_text(out, 1, name);
        }
        close(out, 1, end);
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match &value.kind {
        None => {}
        Some(Kind::NullValue(number)) => {
            write_number(out, i64::from(*number) as u64);
            out.push(1 << 3 | VARINT);
        }
        Some(Kind::NumberValue(number)) => {
            out.extend(number.to_le_bytes().iter().rev());
            out.push(2 << 3 | FIXED);
        }
        Some(Kind::StringValue(text)) => write_text(out, 3, text),
        Some(Kind::BoolValue(truth)) => {
            write_number(out, u64::from(*truth));
            out.push(4 << 3 | VARINT);
        }
        Some(Kind::StructValue(structure)) => {
            let end = out.len();
            write_struct(out, structure);
            close(out, 5, end);
        }
        Some(Kind::ListValue(ListValue { values })) => {
            let end = out.len();
            for value in values.iter().rev() {
                let end = out.len();
                write_value(out, value);
                close(out, 1, end);
            }
            close(out, 6, end);
        }
    }
}

fn write_text(out: &mut Vec<u8>, field: u8, text: &str) {
    let end = out.len();
    out.extend(text.bytes().rev());
    close(out, field, end);
}

/// What was written since is a field.
fn close(out: &mut Vec<u8>, field: u8, end: usize) {
    write_number(out, (out.len() - end) as u64);
    out.push(field << 3 | DELIMITED);
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    let bytes = (64 - (number | 1).leading_zeros()).div_ceil(7);
    for at in (0..bytes).rev() {
        let more = if at + 1 < bytes { 0x80 } else { 0 };
        out.push((number >> (7 * at)) as u8 & 0x7f | more);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn structure<const N: usize>(fields: [(&str, Value); N]) -> Struct {
        Struct { fields: fields.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    #[test]
    fn it_is_what_prost_writes() {
        let labels = structure([("app", value(Kind::StringValue("cart".into()))), ("", value(Kind::BoolValue(false)))]);
        let list =
            ListValue { values: vec![value(Kind::NullValue(0)), Value { kind: None }, value(Kind::BoolValue(true))] };
        let all = structure([
            ("LABELS", value(Kind::StructValue(labels))),
            ("LIST", value(Kind::ListValue(list))),
            ("NOTHING", Value { kind: None }),
            ("EMPTY", value(Kind::StructValue(Struct::default()))),
            ("NULL", value(Kind::NullValue(-1))),
            ("NUMBER", value(Kind::NumberValue(-1.5))),
            ("LONG", value(Kind::StringValue("é".repeat(9_000)))),
            ("SHORT", value(Kind::StringValue("x".repeat(127)))),
            ("NOT SO SHORT", value(Kind::StringValue("x".repeat(128)))),
        ]);
        assert_eq!(encoded(&all), all.encode_to_vec());
        assert!(encoded(&Struct::default()).is_empty());
    }
}

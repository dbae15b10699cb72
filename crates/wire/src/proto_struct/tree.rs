//! A Value with borrowed strings, to be encoded with sorted names.

use bytes::Bytes;
use protobuf::Writer;

use super::read::ValueBuilder;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;

#[derive(Default)]
pub(super) enum Tree<'a> {
    #[default]
    Unset,
    Null(i32),
    Number(f64),
    Text(&'a str),
    Bool(bool),
    /// In input order: of duplicate names the last one counts.
    Struct(Vec<(&'a str, Tree<'a>)>),
    List(Vec<Tree<'a>>),
}

impl<'a> ValueBuilder<'a> for Tree<'a> {
    type Fields = Vec<(&'a str, Tree<'a>)>;

    fn null(number: i32) -> Self {
        Tree::Null(number)
    }

    fn number(number: f64) -> Self {
        Tree::Number(number)
    }

    fn text(text: &'a str) -> Self {
        Tree::Text(text)
    }

    fn boolean(value: bool) -> Self {
        Tree::Bool(value)
    }

    fn fields(&mut self) -> &mut Self::Fields {
        if !matches!(self, Tree::Struct(_)) {
            *self = Tree::Struct(Vec::new());
        }
        let Tree::Struct(fields) = self else { unreachable!("it was made one") };
        fields
    }

    fn values(&mut self) -> &mut Vec<Self> {
        if !matches!(self, Tree::List(_)) {
            *self = Tree::List(Vec::new());
        }
        let Tree::List(values) = self else { unreachable!("it was made one") };
        values
    }

    fn add(fields: &mut Self::Fields, mut entries: Self::Fields) {
        if fields.is_empty() {
            *fields = entries;
        } else {
            fields.append(&mut entries);
        }
    }
}

/// Encodes the fields as prost does, sorted by name.
pub(super) fn encode(fields: &mut [(&str, Tree<'_>)]) -> Bytes {
    protobuf::encode_with(|out| write_struct(out, fields))
}

fn write_struct(out: &mut Writer, fields: &mut [(&str, Tree<'_>)]) {
    fields.sort_by_key(|(name, _)| *name);
    let mut next_name = None;
    for (name, value) in fields.iter_mut().rev() {
        if next_name.replace(*name) == Some(*name) {
            continue;
        }
        let end = out.written();
        if !matches!(value, Tree::Unset) {
            let end = out.written();
            write_value(out, value);
            out.close(2, end);
        }
        if !name.is_empty() {
            out.bytes(1, name.as_bytes());
        }
        out.close(1, end);
    }
}

fn write_value(out: &mut Writer, value: &mut Tree<'_>) {
    let end = out.written();
    match value {
        Tree::Unset => {}
        Tree::Null(number) => out.number(1, i64::from(*number) as u64),
        Tree::Number(number) => {
            out.put(&number.to_le_bytes());
            out.put(&[2 << 3 | FIXED64]);
        }
        Tree::Text(text) => out.bytes(3, text.as_bytes()),
        Tree::Bool(value) => out.put(&[4 << 3 | VARINT, u8::from(*value)]),
        Tree::Struct(fields) => {
            write_struct(out, fields);
            out.close(5, end);
        }
        Tree::List(values) => {
            for value in values.iter_mut().rev() {
                let end = out.written();
                write_value(out, value);
                out.close(1, end);
            }
            out.close(6, end);
        }
    }
}

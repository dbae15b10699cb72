//! A Value whose texts stay where they are, to be written with its names in order.

use bytes::Bytes;

use super::back::Back;
use super::read::Form;

const VARINT: u8 = 0;
const FIXED: u8 = 1;

#[derive(Default)]
pub(super) enum Tree<'a> {
    #[default]
    Unset,
    Null(i32),
    Number(f64),
    Text(&'a str),
    Truth(bool),
    /// As they came: of equal names the last one counts.
    Struct(Vec<(&'a str, Tree<'a>)>),
    List(Vec<Tree<'a>>),
}

impl<'a> Form<'a> for Tree<'a> {
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

    fn truth(truth: bool) -> Self {
        Tree::Truth(truth)
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

/// As prost encodes it. `about`: so long.
pub(super) fn encoded(fields: &mut [(&str, Tree<'_>)], about: usize) -> Bytes {
    let mut out = Back::with_room(about);
    write_struct(&mut out, fields);
    out.written()
}

fn write_struct(out: &mut Back, fields: &mut [(&str, Tree<'_>)]) {
    fields.sort_by_key(|(name, _)| *name);
    let mut behind = None;
    for (name, value) in fields.iter_mut().rev() {
        if behind.replace(*name) == Some(*name) {
            continue;
        }
        let end = out.len();
        if !matches!(value, Tree::Unset) {
            let end = out.len();
            write_value(out, value);
            out.close(2, end);
        }
        if !name.is_empty() {
            write_text(out, 1, name);
        }
        out.close(1, end);
    }
}

fn write_value(out: &mut Back, value: &mut Tree<'_>) {
    let end = out.len();
    match value {
        Tree::Unset => {}
        Tree::Null(number) => {
            out.varint(i64::from(*number) as u64);
            out.put(&[1 << 3 | VARINT]);
        }
        Tree::Number(number) => {
            out.put(&number.to_le_bytes());
            out.put(&[2 << 3 | FIXED]);
        }
        Tree::Text(text) => write_text(out, 3, text),
        Tree::Truth(truth) => out.put(&[4 << 3 | VARINT, u8::from(*truth)]),
        Tree::Struct(fields) => {
            write_struct(out, fields);
            out.close(5, end);
        }
        Tree::List(values) => {
            for value in values.iter_mut().rev() {
                let end = out.len();
                write_value(out, value);
                out.close(1, end);
            }
            out.close(6, end);
        }
    }
}

fn write_text(out: &mut Back, field: u8, text: &str) {
    let end = out.len();
    out.put(text.as_bytes());
    out.close(field, end);
}

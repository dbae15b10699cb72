//! A Struct with sorted names, as `sort_names` returns it, decoded on demand: most node metadata is never read.

use bytes::Bytes;
use protobuf::Fields;
use serde_json::Value;

use super::read::{BOOL, NULL, NUMBER, STRING, STRUCT};
use super::{FIELD_1, FIELD_2, MAX_DEPTH, read, sort_names};

/// A view of the fields.
pub struct StructView(Bytes);

/// A view of one value.
#[derive(Clone, Copy)]
pub struct ValueView<'a>(&'a [u8]);

impl StructView {
    /// The input must come from `sort_names`. Names out of order are not found.
    pub fn new(message: &Bytes) -> StructView {
        debug_assert_eq!(sort_names(message).as_ref(), Ok(message), "the names are sorted");
        StructView(message.clone())
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, ValueView<'_>)> {
        entries(&self.0)
    }
}

impl<'a> ValueView<'a> {
    /// Also for an unset Value.
    pub fn is_null(self) -> bool {
        self.0.is_empty() || self.of_kind(NULL).is_some()
    }

    pub fn text(self) -> Option<&'a str> {
        str::from_utf8(self.of_kind(STRING)?.delimited().ok()?).ok()
    }

    pub fn boolean(self) -> Option<bool> {
        Some(self.of_kind(BOOL)?.varint().ok()? != 0)
    }

    pub fn number(self) -> Option<f64> {
        self.of_kind(NUMBER)?.double().ok()
    }

    /// Empty if it is not a Struct.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, ValueView<'a>)> {
        entries(self.of_kind(STRUCT).and_then(|mut fields| fields.delimited().ok()).unwrap_or_default())
    }

    /// Equal bytes mean equal values.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn json(self) -> Value {
        let mut value = Value::default();
        // `sort_names` has validated it.
        read::merge(self.0, &mut value, MAX_DEPTH).map_or(Value::Null, |()| value)
    }

    fn of_kind(self, kind: u32) -> Option<Fields<'a>> {
        let mut fields = Fields::new(self.0);
        (fields.tag().ok()?? == kind).then_some(fields)
    }
}

/// Entries: a name and a value, of which empty ones are not encoded.
fn entries(message: &[u8]) -> impl Iterator<Item = (&str, ValueView<'_>)> {
    let mut all = Fields::new(message);
    std::iter::from_fn(move || {
        all.tag().ok()??;
        let (mut name, mut item) = ("", ValueView(&[]));
        let mut entry = Fields::new(all.delimited().ok()?);
        while let Some(tag) = entry.tag().ok()? {
            match tag {
                FIELD_1 => name = entry.text().ok()?,
                FIELD_2 => item = ValueView(entry.delimited().ok()?),
                _ => return None,
            }
        }
        Some((name, item))
    })
}

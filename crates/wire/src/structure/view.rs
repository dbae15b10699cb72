//! A Struct whose names are in order, as `sorted` leaves it, read where somebody asks: most of what a node sends nobody does.

use bytes::Bytes;
use serde_json::Value;

use super::fields::{FIRST, Fields, SECOND};
use super::read::{NULL, NUMBER, STRUCT, TEXT, TRUTH};
use super::{DEEPEST, read, sorted};

/// The fields by name.
pub struct View(Bytes);

/// One of the values.
#[derive(Clone, Copy)]
pub struct Item<'a>(&'a [u8]);

impl View {
    /// Of what `sorted` put in order. Names of another order are not found.
    pub fn new(structure: &Bytes) -> View {
        debug_assert_eq!(sorted(structure).as_ref(), Ok(structure), "somebody put it in order");
        View(structure.clone())
    }

    pub fn fields(&self) -> impl Iterator<Item = (&str, Item<'_>)> {
        entries(&self.0)
    }
}

impl<'a> Item<'a> {
    /// Also where nothing is said.
    pub fn is_null(self) -> bool {
        self.0.is_empty() || self.of_kind(NULL).is_some()
    }

    pub fn text(self) -> Option<&'a str> {
        str::from_utf8(self.of_kind(TEXT)?.delimited().ok()?).ok()
    }

    pub fn truth(self) -> Option<bool> {
        Some(self.of_kind(TRUTH)?.varint().ok()? != 0)
    }

    pub fn number(self) -> Option<f64> {
        self.of_kind(NUMBER)?.double().ok()
    }

    /// None, if it is no Struct.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Item<'a>)> {
        entries(self.of_kind(STRUCT).and_then(|mut fields| fields.delimited().ok()).unwrap_or_default())
    }

    /// Equal ones mean the same.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn json(self) -> Value {
        let mut value = Value::default();
        // Whoever made the view has read it before.
        read::merge(self.0, &mut value, DEEPEST).map_or(Value::Null, |()| value)
    }

    fn of_kind(self, kind: u32) -> Option<Fields<'a>> {
        let mut fields = Fields::new(self.0);
        (fields.key().ok()?? == kind).then_some(fields)
    }
}

/// Each is a name and a value, of which what is empty is not written.
fn entries(structure: &[u8]) -> impl Iterator<Item = (&str, Item<'_>)> {
    let mut all = Fields::new(structure);
    std::iter::from_fn(move || {
        all.key().ok()??;
        let (mut name, mut item) = ("", Item(&[]));
        let mut entry = Fields::new(all.delimited().ok()?);
        while let Some(key) = entry.key().ok()? {
            match key {
                FIRST => name = entry.text().ok()?,
                SECOND => item = Item(entry.delimited().ok()?),
                _ => return None,
            }
        }
        Some((name, item))
    })
}

//! Decodes a Value into JSON.

use serde_json::{Map, Value};

use super::read::ValueBuilder;

impl<'a> ValueBuilder<'a> for Value {
    type Fields = Map<String, Value>;

    fn null(_: i32) -> Self {
        Value::Null
    }

    fn number(number: f64) -> Self {
        Value::from(number)
    }

    fn text(text: &'a str) -> Self {
        Value::from(text)
    }

    fn boolean(value: bool) -> Self {
        Value::from(value)
    }

    fn fields(&mut self) -> &mut Map<String, Value> {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        self.as_object_mut().expect("it was made one")
    }

    fn values(&mut self) -> &mut Vec<Value> {
        if !self.is_array() {
            *self = Value::Array(Vec::new());
        }
        self.as_array_mut().expect("it was made one")
    }

    fn add(fields: &mut Map<String, Value>, entries: Vec<(&'a str, Value)>) {
        // A map built from an iterator costs half of one built by inserts.
        let mut added: Map<_, _> = entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if fields.is_empty() {
            *fields = added;
        } else {
            fields.append(&mut added);
        }
    }
}

//! What a node says of itself, however it was sent: a tree of names and values.

use std::borrow::Cow;

use serde_json::Value;

/// A value in it. What is of another type is not there.
pub trait Said<'a>: Copy {
    fn get(self, key: &str) -> Option<Self>;
    fn is_null(self) -> bool;
    fn text(self) -> Option<&'a str>;
    fn truth(self) -> Option<bool>;
    fn number(self) -> Option<f64>;
    /// In the order of their names.
    fn fields(self) -> impl Iterator<Item = (&'a str, Self)>;
    fn json(self) -> Cow<'a, Value>;
    /// Equal ones mean the same.
    fn bytes(self) -> Cow<'a, [u8]>;
}

impl<'a> Said<'a> for &'a Value {
    fn get(self, key: &str) -> Option<Self> {
        Value::get(self, key)
    }

    fn is_null(self) -> bool {
        Value::is_null(self)
    }

    fn text(self) -> Option<&'a str> {
        self.as_str()
    }

    fn truth(self) -> Option<bool> {
        self.as_bool()
    }

    fn number(self) -> Option<f64> {
        self.as_f64()
    }

    fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    fn json(self) -> Cow<'a, Value> {
        Cow::Borrowed(self)
    }

    fn bytes(self) -> Cow<'a, [u8]> {
        Cow::Owned(self.to_string().into_bytes())
    }
}

//! Node metadata as a tree of keys and values, independent of its representation (JSON or an encoded protobuf Struct).

use std::borrow::Cow;

use serde_json::Value;

/// A value of the tree. Accessors return `None` for values of another type.
pub trait MetadataValue<'a>: Copy {
    fn get(self, key: &str) -> Option<Self>;
    fn is_null(self) -> bool;
    fn as_str(self) -> Option<&'a str>;
    fn as_bool(self) -> Option<bool>;
    fn as_f64(self) -> Option<f64>;
    /// In the order of their keys.
    fn fields(self) -> impl Iterator<Item = (&'a str, Self)>;
    fn to_json(self) -> Cow<'a, Value>;
    /// Equal bytes mean equal values.
    fn to_bytes(self) -> Cow<'a, [u8]>;
}

impl<'a> MetadataValue<'a> for &'a Value {
    fn get(self, key: &str) -> Option<Self> {
        Value::get(self, key)
    }

    fn is_null(self) -> bool {
        Value::is_null(self)
    }

    fn as_str(self) -> Option<&'a str> {
        self.as_str()
    }

    fn as_bool(self) -> Option<bool> {
        self.as_bool()
    }

    fn as_f64(self) -> Option<f64> {
        self.as_f64()
    }

    fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
    }

    fn to_json(self) -> Cow<'a, Value> {
        Cow::Borrowed(self)
    }

    fn to_bytes(self) -> Cow<'a, [u8]> {
        Cow::Owned(self.to_string().into_bytes())
    }
}

//! What the fields of an encoded request hold, by their numbers. Used before a request is decoded.

use crate::Variant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestField {
    Node,
    Subscribe,
    Unsubscribe,
    /// An entry of `initial_resource_versions`.
    InitialVersion,
    /// A name with parameters.
    Locator,
    Error,
    Other,
}

impl RequestField {
    pub(crate) fn of(variant: Variant, number: u32) -> RequestField {
        match (variant, number) {
            (Variant::Sotw, 2) | (Variant::Delta, 1) => RequestField::Node,
            (Variant::Sotw | Variant::Delta, 3) => RequestField::Subscribe,
            (Variant::Delta, 4) => RequestField::Unsubscribe,
            (Variant::Delta, 5) => RequestField::InitialVersion,
            (Variant::Sotw, 7) | (Variant::Delta, 8 | 9) => RequestField::Locator,
            (Variant::Sotw, 6) | (Variant::Delta, 7) => RequestField::Error,
            _ => RequestField::Other,
        }
    }
}

//! Protobuf oneofs: at most one of their members may be set. Each message lists its members.

use std::fmt;

/// More than one member of a oneof is set.
#[derive(Debug)]
pub(crate) struct Conflict(Vec<&'static str>);

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} exclude each other; keep one of them", self.0.join(" and "))
    }
}

/// The member that is set, if any.
pub(crate) fn one_of<T, const N: usize>(members: [(&'static str, Option<T>); N]) -> Result<Option<T>, Conflict> {
    let mut names = Vec::new();
    let mut found = None;
    for (name, value) in members {
        if value.is_some() {
            names.push(name);
            found = value;
        }
    }
    if names.len() > 1 { Err(Conflict(names)) } else { Ok(found) }
}

/// An enum for a message that is nothing but a oneof. The first variant means `{}`.
macro_rules! oneof_message {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $(#[$empty_doc:meta])* $empty:ident,
            $( $(#[$variant_doc:meta])* $variant:ident($type:ty) = $json:literal ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[$empty_doc])* #[default] $empty,
            $( $(#[$variant_doc])* $variant($type) ),+
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                match self {
                    Self::$empty => {}
                    $( Self::$variant(value) => map.serialize_entry($json, value)? ),+
                }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Default, serde::Deserialize)]
                #[serde(default)]
                #[allow(non_snake_case)]
                struct Raw { $( #[serde(rename = $json)] $variant: Option<$type> ),+ }
                let raw = Raw::deserialize(deserializer)?;
                let members = [ $( ($json, raw.$variant.map($name::$variant)) ),+ ];
                let written = $crate::kinds::one_of::one_of(members).map_err(serde::de::Error::custom)?;
                Ok(written.unwrap_or_default())
            }
        }
    };
}
pub(crate) use oneof_message;

#[cfg(test)]
mod tests {
    use super::one_of;

    #[test]
    fn one_member_is_taken() {
        assert_eq!(one_of([("a", None), ("b", Some(2))]).ok(), Some(Some(2)));
        assert_eq!(one_of::<u8, 1>([("a", None)]).ok(), Some(None));
    }

    #[test]
    fn two_members_are_named() {
        let conflict = one_of([("a", Some(1)), ("b", None), ("c", Some(3))]).map(|_| ()).unwrap_err();
        assert_eq!(conflict.to_string(), "a and c exclude each other; keep one of them");
    }
}

//! Metadata of every object: name, namespace, labels, age, owners, and location.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::diagnostic::Location;
use crate::labels::Labels;

#[derive(Debug, Clone, PartialEq)]
pub struct Object<S> {
    pub meta: Meta,
    pub spec: S,
}

/// Equality ignores the location.
#[derive(Debug, Clone, Default)]
pub struct Meta {
    pub name: Arc<str>,
    /// Empty for kinds without a namespace.
    pub namespace: Arc<str>,
    pub labels: Labels,
    pub annotations: Labels,
    /// Unix seconds. `None`: unknown, sorts as oldest.
    pub created: Option<i64>,
    /// The API server generated its name.
    pub has_generated_name: bool,
    /// The controlling owner.
    pub controller: Option<Box<Owner>>,
    /// `None`: not from a file.
    pub at: Option<Location>,
    /// The object has a deletion timestamp.
    pub deleting: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Meta {
    /// Oldest first, then by name, then by namespace.
    pub fn age_order(&self, other: &Meta) -> Ordering {
        (self.created, &self.name, &self.namespace).cmp(&(other.created, &other.name, &other.namespace))
    }
}

impl PartialEq for Meta {
    fn eq(&self, other: &Meta) -> bool {
        let Meta { name, namespace, labels, annotations, created, has_generated_name, controller, at: _, deleting } =
            self;
        *name == other.name
            && *namespace == other.namespace
            && *labels == other.labels
            && *annotations == other.annotations
            && *created == other.created
            && *has_generated_name == other.has_generated_name
            && *controller == other.controller
            && *deleting == other.deleting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(created: Option<i64>, namespace: &str, name: &str) -> Meta {
        Meta { created, namespace: namespace.into(), name: name.into(), ..Meta::default() }
    }

    #[test]
    fn unknown_age_is_oldest_then_age_name_namespace() {
        let sorted = [
            meta(None, "z", "z"),
            meta(Some(1), "b", "a"),
            meta(Some(1), "c", "a"),
            meta(Some(1), "a", "b"),
            meta(Some(2), "a", "a"),
        ];
        assert!(sorted.is_sorted_by(|a, b| a.age_order(b) == Ordering::Less));
    }

    #[test]
    fn equality_ignores_the_location() {
        let here = Meta { at: Some(Location { file: "a".into(), line: 1, column: 1 }), ..meta(None, "a", "a") };
        assert_eq!(here, meta(None, "a", "a"));
        assert_ne!(here, Meta { deleting: true, ..here.clone() });
    }
}

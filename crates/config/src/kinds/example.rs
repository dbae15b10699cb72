//! Parses the examples in tests of kinds.

use serde::de::DeserializeOwned;

use crate::de::{FieldError, Outcome, Rules, read};
use crate::yaml::{Scalars, documents};

fn outcome<T: DeserializeOwned>(yaml: &str) -> Outcome<T> {
    let node = documents(yaml, Scalars::Objects).next().expect("an example has a document").expect("it is YAML");
    read(&node, "spec", Rules::Protobuf)
}

/// The object of a valid example.
pub(crate) fn example<T: DeserializeOwned>(yaml: &str) -> T {
    let Outcome { value, warnings } = outcome(yaml);
    assert_eq!(warnings, [], "{yaml}");
    value.unwrap_or_else(|FieldError { field, what, .. }| panic!("{field}: {what}\n{yaml}"))
}

/// `field: what` of a rejected example.
pub(crate) fn parse_error<T: DeserializeOwned>(yaml: &str) -> String {
    let FieldError { field, what, .. } = outcome::<T>(yaml).value.map(|_| ()).expect_err(yaml);
    format!("{field}: {what}")
}

/// Every variant, read by its name and by its number.
pub(crate) fn check_enum<T: DeserializeOwned + PartialEq + std::fmt::Debug>(variants: &[(&str, T)]) {
    for (number, (name, variant)) in variants.iter().enumerate() {
        assert_eq!(&example::<T>(&format!("{name:?}")), variant);
        assert_eq!(&example::<T>(&number.to_string()), variant, "{number}");
    }
    let rejected = parse_error::<T>("NO_SUCH_NAME");
    assert!(variants.iter().all(|(name, _)| rejected.contains(name)), "{rejected}");
}

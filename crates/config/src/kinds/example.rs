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
    let outcome = outcome(yaml);
    assert_eq!(outcome.warnings, [], "{yaml}");
    outcome.complete().unwrap_or_else(|errors| panic!("{errors:?}\n{yaml}"))
}

/// `field: what` of a rejected example.
pub(crate) fn parse_error<T: DeserializeOwned>(yaml: &str) -> String {
    let errors = outcome::<T>(yaml).complete().map(|_| ()).expect_err(yaml);
    let FieldError { field, what, .. } = &errors[0];
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

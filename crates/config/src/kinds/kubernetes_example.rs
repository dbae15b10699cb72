//! Parses the examples in tests of Kubernetes' own kinds.

use serde::de::DeserializeOwned;

use crate::de::{FieldError, Rules, read};
use crate::yaml::{Scalars, documents};

fn outcome<T: DeserializeOwned>(yaml: &str) -> Result<T, FieldError> {
    let node = documents(yaml, Scalars::Objects).next().expect("an example has a document").expect("it is YAML");
    read(&node, "", Rules::Kubernetes).value
}

pub(crate) fn kubernetes<T: DeserializeOwned>(yaml: &str) -> T {
    outcome(yaml).unwrap_or_else(|FieldError { field, what, .. }| panic!("{field}: {what}\n{yaml}"))
}

/// `field: what` of a rejected example.
pub(crate) fn kubernetes_parse_error<T: DeserializeOwned>(yaml: &str) -> String {
    let FieldError { field, what, .. } = outcome::<T>(yaml).map(|_| ()).expect_err(yaml);
    format!("{field}: {what}")
}

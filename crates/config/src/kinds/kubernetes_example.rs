//! Parses the examples in tests of Kubernetes' own kinds.

use serde::de::DeserializeOwned;

use crate::de::{FieldError, Rules, read};
use crate::yaml::{Scalars, documents};

fn outcome<T: DeserializeOwned>(yaml: &str) -> Result<T, Vec<FieldError>> {
    let node = documents(yaml, Scalars::Objects).next().expect("an example has a document").expect("it is YAML");
    read(&node, "", Rules::Kubernetes).complete()
}

pub(crate) fn kubernetes<T: DeserializeOwned>(yaml: &str) -> T {
    outcome(yaml).unwrap_or_else(|errors| panic!("{errors:?}\n{yaml}"))
}

/// `field: what` of a rejected example.
pub(crate) fn kubernetes_parse_error<T: DeserializeOwned>(yaml: &str) -> String {
    let errors = outcome::<T>(yaml).map(|_| ()).expect_err(yaml);
    let FieldError { field, what, .. } = &errors[0];
    format!("{field}: {what}")
}

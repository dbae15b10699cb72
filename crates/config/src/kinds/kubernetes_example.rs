//! Reads the examples of the tests of Kubernetes' own kinds.

use serde::de::DeserializeOwned;

use crate::de::{Problem, Rules, read};
use crate::yaml::{Scalars, documents};

fn outcome<T: DeserializeOwned>(yaml: &str) -> Result<T, Problem> {
    let node = documents(yaml, Scalars::Objects).next().expect("an example has a document").expect("it is YAML");
    read(&node, "", Rules::Kubernetes).value
}

pub(crate) fn kubernetes<T: DeserializeOwned>(yaml: &str) -> T {
    outcome(yaml).unwrap_or_else(|Problem { field, what, .. }| panic!("{field}: {what}\n{yaml}"))
}

/// `field: what` of an example that cannot be used.
pub(crate) fn kubernetes_refusal<T: DeserializeOwned>(yaml: &str) -> String {
    let Problem { field, what, .. } = outcome::<T>(yaml).map(|_| ()).expect_err(yaml);
    format!("{field}: {what}")
}

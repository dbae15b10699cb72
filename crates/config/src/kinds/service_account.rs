//! ServiceAccount: the identity that pods run as; only its name and annotations are used.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceAccount {}

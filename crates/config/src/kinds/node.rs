//! Node: only its labels are used, for the locality of its pods.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Node {}

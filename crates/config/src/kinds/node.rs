//! Node: its labels, which are in its meta, give the locality of its pods.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Node {}

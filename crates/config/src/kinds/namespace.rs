//! Namespace: its labels, which are in its meta, say all.

use serde::Deserialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Namespace {}

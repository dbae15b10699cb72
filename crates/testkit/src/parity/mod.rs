//! The parity corpus: cases, the responses recorded from istiod, and the comparison. `compare` and `decode_any` agree with the arbiter,
//! parity.py; `tests/comparers` checks that.

mod case;
mod compare;
mod corpus;
mod decode;
mod in_process;
mod source;

pub use case::{Case, CaseProxy};
pub use compare::{Comparison, ResourceDifference, ResourcesByType, ResponsesByProxy, compare, differences, normal};
pub use corpus::Corpus;
pub use decode::decode_any;
pub use in_process::InProcess;
pub use source::{AdsSource, ResourceSource, fetch_resources};

//! The parity corpus: cases, the answers recorded from istiod, and the comparison. `compare` and `opened` mean what the arbiter,
//! parity.py, means; `tests/comparers.rs` holds them together.

mod answer;
mod case;
mod compare;
mod corpus;
mod in_process;
mod open;

pub use answer::{OverTheWire, Source, answer};
pub use case::{Asker, Case, plain};
pub use compare::{Answer, Answers, Compared, compare, differences, normal};
pub use corpus::Corpus;
pub use in_process::InProcess;
pub use open::opened;

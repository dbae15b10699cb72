//! What tests of the whole program share: the parity corpus and its comparer, a delta ADS client, an Envoy runner, an API server,
//! an SDS stub.
//! Not part of the product.

pub mod ads;
pub mod authority;
pub mod cluster;
pub mod envoy;
pub mod grpc;
pub mod load;
pub mod netns;
pub mod parity;
pub mod place;
pub mod pod;
pub mod process;
pub mod scan;
pub mod sds;
pub mod server;
pub mod token;

use std::io::Write;

/// Says loudly that a test did not run. On CI nothing may be missing, so there it fails.
pub fn skip(reason: &str) {
    assert!(!place::on_ci(), "CI must not skip this: {reason}");
    say(&format!("SKIPPED: {reason}"));
}

/// A line that the test harness does not swallow.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

//! What tests of the whole program share: the parity corpus and its comparer, a delta ADS client, Envoy, an API server, a Prometheus, an SDS stub, waiting,
//! ports, processes. Not part of the product.

pub mod ads;
pub mod cluster;
pub mod environment;
pub mod envoy;
pub mod fixture;
pub mod grpc;
pub mod http_client;
pub mod injection;
pub mod netns;
pub mod parity;
pub mod pod;
pub mod port;
pub mod process;
pub mod random;
pub mod scan;
pub mod scraper;
pub mod sds;
pub mod server;
pub mod test_ca;
pub mod token;
pub mod wait;

use std::io::Write;

/// Reports that a test did not run. On CI it fails: there nothing may be skipped.
pub fn skip(reason: &str) {
    assert!(!environment::on_ci(), "CI must not skip this: {reason}");
    say(&format!("SKIPPED: {reason}"));
}

/// A line that the test harness does not swallow.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

//! Fuzz targets: functions that take any bytes, and panic where the code breaks a promise. libFuzzer calls them from the programs in `fuzz/src/bin`
//! (`cargo xtask fuzz TARGET`); the tests of this crate replay the corpus in `tests/fuzz`. Targets of private code are in the crate that it belongs to:
//! `xds/src/fuzz.rs`.

mod authenticators;
mod csr;
mod http2_requests;
mod objects;
mod proto_struct;

pub use authenticators::authenticators;
pub use csr::csr;
pub use http2_requests::{hpack, http2};
pub use objects::{objects, webhook};
pub use proto_struct::proto_struct;

/// Checks one input: panics if something is wrong.
pub type FuzzTarget = fn(&[u8]);

/// By the name of their folder in the corpus.
pub const TARGETS: [(&str, FuzzTarget); 7] = [
    ("authenticators", authenticators),
    ("csr", csr),
    ("hpack", hpack),
    ("http2", http2),
    ("objects", objects),
    ("proto_struct", proto_struct),
    ("webhook", webhook),
];

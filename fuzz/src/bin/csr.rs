//! libFuzzer calls `fuzzing::csr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::csr(data));

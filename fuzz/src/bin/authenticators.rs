//! libFuzzer calls `fuzzing::authenticators`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::authenticators(data));

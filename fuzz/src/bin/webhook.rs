//! libFuzzer calls `fuzzing::webhook`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::webhook(data));

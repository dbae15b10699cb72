//! libFuzzer calls `fuzzing::objects`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::objects(data));

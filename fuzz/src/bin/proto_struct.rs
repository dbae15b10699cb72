//! libFuzzer calls `fuzzing::proto_struct`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::proto_struct(data));

//! libFuzzer calls `xds::fuzz::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xds::fuzz::requests(data));

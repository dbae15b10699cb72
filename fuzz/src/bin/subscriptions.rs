//! libFuzzer calls `xds::fuzz::subscriptions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| xds::fuzz::subscriptions(data));

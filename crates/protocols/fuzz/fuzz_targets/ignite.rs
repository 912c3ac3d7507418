//! See `protocols::fuzz::ignite`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::ignite(input));

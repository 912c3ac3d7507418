//! See `protocols::fuzz::mqtt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::mqtt(input));

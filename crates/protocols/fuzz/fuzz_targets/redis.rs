//! See `protocols::fuzz::redis`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::redis(input));

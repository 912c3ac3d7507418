//! See `protocols::fuzz::mongodb`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::mongodb(input));

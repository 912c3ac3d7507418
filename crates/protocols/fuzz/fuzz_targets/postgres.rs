//! See `protocols::fuzz::postgres`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::postgres(input));

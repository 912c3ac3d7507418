//! See `protocols::fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::http(input));

//! See `protocols::fuzz::tcp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::tcp(input));

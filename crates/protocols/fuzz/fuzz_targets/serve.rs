//! See `protocols::fuzz::serve`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::serve(input));

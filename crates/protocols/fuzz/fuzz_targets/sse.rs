//! See `protocols::fuzz::sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::sse(input));

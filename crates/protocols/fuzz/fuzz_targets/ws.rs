//! See `protocols::fuzz::ws`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::ws(input));

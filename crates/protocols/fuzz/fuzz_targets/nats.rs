//! See `protocols::fuzz::nats`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::nats(input));

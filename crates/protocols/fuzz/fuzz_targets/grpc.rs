//! See `protocols::fuzz::grpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::grpc(input));

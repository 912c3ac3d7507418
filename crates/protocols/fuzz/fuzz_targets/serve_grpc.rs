//! See `protocols::fuzz::serve_grpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::serve_grpc(input));

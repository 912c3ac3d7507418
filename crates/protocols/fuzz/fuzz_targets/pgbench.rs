//! See `protocols::fuzz::pgbench`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| protocols::fuzz::pgbench(input));

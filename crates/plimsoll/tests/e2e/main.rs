//! The binary as its users have it, against real servers: one program of tests, as linking is most of what a test costs
//! to build. A file asks one question; `cargo test --release -p plimsoll --test e2e truth::` runs one file.

mod harness;

mod bad_input;
mod breaks;
mod doctor;
mod figures;
mod hold;
mod induced;
mod limits;
mod nodes;
mod observer;
mod storm;
mod strangers;
mod tables;
mod talk;
mod truth;

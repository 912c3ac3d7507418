//! The binary as its users have it, against real servers: one program of tests, as linking is most of what a test costs
//! to build. A file asks one question; `cargo test --release -p plimsoll --test e2e truth::` runs one file.

mod harness;

mod bad_input;
mod breaks;
mod churn;
mod doctor;
mod elastic;
mod figures;
mod hold;
mod induced;
mod knee;
mod limits;
mod nodes;
mod observer;
mod storm;
mod strangers;
mod sweep;
mod sweep_scripts;
mod tables;
mod talk;
mod truth;
mod views;

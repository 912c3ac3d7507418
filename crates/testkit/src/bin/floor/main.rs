//! The floor: what does the kernel alone ask for N connections?
//!
//! The least that a program can do to establish, verify and hold connections with epoll, at both ends, on
//! loopback. It parses nothing, checks next to nothing and keeps four bytes per connection, so whatever a real
//! tool needs beyond this is the tool's own. `make bench` divides by it.
//!
//! The same program is the parent, the servers and the clients: see `parent`, `server` and `client`.

mod client;
mod parent;
mod plan;
mod server;
mod sys;

use std::io::Write;
use std::process::ExitCode;

use plan::{Plan, Role};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "-h" || a == "--help") {
        return match std::io::stdout().write_all(plan::USAGE.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let plan = match Plan::read(&arguments) {
        Ok(plan) => plan,
        Err(why) => return complain(2, &format!("{why}\n{}", plan::USAGE.trim_end())),
    };
    let done = match plan.role {
        Role::Parent => parent::run(&plan),
        Role::Server(port) => server::run(&plan, port),
        Role::Client(port, number) => client::run(&plan, port, number),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => complain(1, &why),
    }
}

fn complain(code: u8, why: &str) -> ExitCode {
    // a parent that is gone cannot be told; the exit code still says it
    let _ = writeln!(std::io::stderr(), "plimsoll-floor: {why}");
    ExitCode::from(code)
}

//! One process that drives a share of the connections: where they come from, when they speak, and a file per
//! experiment that says what is done with them.

mod caller;
pub mod experiments;
mod sources;
pub mod trust;

use std::io;

use fleet::{Link, Order, Report};
use thiserror::Error;

/// Why a worker cannot go on.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The coordinator is gone, or speaks another version.
    #[error("lost the coordinator: {0}")]
    Link(#[from] io::Error),
    /// The kernel refused what every worker needs.
    #[error("failed to set up: {0}")]
    Setup(String),
    /// An order came that has no place here.
    #[error("was told {0} when something else was due")]
    OutOfOrder(String),
}

/// Runs this process as a worker: takes its assignment from `link` and carries it out to the end.
///
/// # Errors
/// What ended it early; the coordinator has been told, as far as it could be.
pub fn run(mut link: Link) -> Result<(), WorkerError> {
    let assignment = match link.wait()? {
        Order::Start(assignment) => *assignment,
        other => return Err(WorkerError::OutOfOrder(format!("{other:?}"))),
    };
    let ended = match assignment.spec.storm {
        None => experiments::hold::run(assignment, &mut link),
        Some(_) => experiments::storm::run(assignment, &mut link),
    };
    if let Err(error) = &ended {
        let _ = link.say(&Report::Failed(error.to_string()));
    }
    ended
}

//! Pure: slopes with intervals, the line, validity of stages, the search for the breaking point.
//!
//! Everything here is a function from plain data to plain data: no socket, no clock, no file, no /proc.
//! So a stored run can be concluded again by later rules, and every rule is tested from literals.

pub mod batch;
pub mod churn;
pub mod compare;
pub mod conclude;
pub mod cost;
pub mod line;
pub mod search;
pub mod slope;
pub mod sweep;
#[cfg(test)]
mod testing;
pub mod threshold;
pub mod usl;
pub mod validity;

pub use conclude::conclude;
pub use cost::costs;
pub use line::line;
pub use search::{Next, Search};
pub use slope::{Fit, fit, slope};
pub use threshold::{Expression, ThresholdError};
pub use validity::{Cause, causes, judge_stages};

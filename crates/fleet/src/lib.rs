//! Workers started together, told what to do, and their samples merged.
//!
//! The coordinator is dumb and the workers are smart: each derives its own share from the spec, and only
//! orders, counters and histograms travel.

pub mod message;
pub mod pipe;
pub mod plan;

pub use message::{Assignment, Order, PortShare, Report};
pub use pipe::{Crew, Event, Link, Stopper};

//! For tests and benches: misbehaving servers, real programs under lowered limits, and the floor program.
//!
//! Nothing here is part of Plimsoll itself; it is a dev-dependency. Everything started is bound to loopback, is
//! bounded in time and ends with its guard.

pub mod bad;
pub mod certificate;
pub mod cgroup;
pub mod law;
pub mod limited;
pub mod loopback;

//! What is asked, what was seen, what came out: the plain data that travels through Plimsoll.
//!
//! Nothing here opens a socket, reads a clock or touches a file. Every arrow in ARCHITECTURE.md's
//! picture is one of these types, so each stage of the flow can be tested from literals.

pub mod churn;
pub mod estimate;
pub mod failure;
pub mod histogram;
pub mod login;
mod mongodb;
pub mod observation;
pub mod operation;
pub mod result;
pub mod sample;
pub mod spec;
mod ssl_mode;
pub mod storm;
pub mod sweep;
pub mod talk;
pub mod target;
pub mod units;

pub use churn::{ChurnResult, ChurnSpec};
pub use estimate::Estimate;
pub use failure::{Failure, FailureKind, Tally};
pub use histogram::{Latencies, Latency};
pub use login::{Login, without_password};
pub use observation::{Group, Observation, Settings};
pub use operation::{Call, CallKind, Metadata, Operation, QueryMode, Script, Scripts};
pub use result::RunResult;
pub use sample::{Counters, Phase, Sample};
pub use spec::Spec;
pub use ssl_mode::SslMode;
pub use storm::{Round, RoundKind, StormResult, StormSpec};
pub use sweep::{SweepResult, SweepSpec};
pub use talk::{TalkResult, TalkSpec};
pub use target::{Scheme, Target};

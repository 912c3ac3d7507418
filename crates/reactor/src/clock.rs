//! What time is it? The one place that asks.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same for every process of one machine since boot.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLISECOND: Nanos = 1_000_000;

/// The time now.
pub fn now() -> Nanos {
    to_nanos(clock_gettime(ClockId::Monotonic))
}

/// CPU time that this process has used, all threads.
pub fn cpu_used() -> Nanos {
    to_nanos(clock_gettime(ClockId::ProcessCPUTime))
}

/// A duration in seconds as nanoseconds; negative and non-finite values are zero.
pub fn from_seconds(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// Nanoseconds as seconds.
pub fn to_seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

fn to_nanos(t: rustix::time::Timespec) -> Nanos {
    t.tv_sec as u64 * SECOND + t.tv_nsec as u64
}

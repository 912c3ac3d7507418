//! What is done with the connections: a file per experiment.

pub mod hold;
pub mod storm;

use fleet::{Link, Report};
use model::Sample;
use protocols::Driver;
use reactor::Reactor;
use reactor::clock::{self, Nanos};

use crate::WorkerError;

/// A loop's own pulse: how late it comes is how much the generator is behind.
const PULSE: Nanos = 50 * clock::MILLISECOND;
/// How often counters and latencies are reported.
const REPORT_EVERY: Nanos = 500 * clock::MILLISECOND;

/// The note of a connection, if the place is still held by the same one.
fn current<D: Driver, N: Default>(reactor: &mut Reactor<D, N>, index: u32, tenancy: u32) -> Option<&mut N> {
    if reactor.tenancy(index) == tenancy { reactor.note(index) } else { None }
}

/// Reports what was counted since the last time.
fn say_sample<D: Driver, N: Default>(
    reactor: &Reactor<D, N>,
    sample: &mut Sample,
    link: &mut Link,
) -> Result<(), WorkerError> {
    sample.counters.bytes_in = reactor.bytes_in;
    sample.counters.bytes_out = reactor.bytes_out;
    sample.cpu_seconds = clock::to_seconds(clock::cpu_used());
    Ok(link.say(&Report::Sample(Box::new(sample.take())))?)
}

/// A number above 0 and at most 1 that is the same for the same seed, and else as good as random.
fn share(seed: u64) -> f64 {
    // SplitMix64: one addition and two multiplications, and good enough to scatter clients.
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed ^ mixed >> 31) >> 11) + 1) as f64 / (1u64 << 53) as f64
}

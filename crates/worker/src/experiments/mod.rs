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

//! What did a worker see? Counters and histograms, made to be merged.

use serde::{Deserialize, Serialize};

use crate::failure::Tally;
use crate::histogram::Latencies;

/// The steps between nothing and a ready connection, each with its own latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// From `connect()` to an open TCP connection.
    Tcp,
    /// The TLS handshake.
    Tls,
    /// The protocol's own greeting (HTTP upgrade, stream head, HELLO).
    Upgrade,
    /// Login.
    Auth,
    /// From `connect()` to ready: all of the above.
    Ready,
}

impl Phase {
    /// Every phase in order.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Tls, Self::Upgrade, Self::Auth, Self::Ready];

    /// The key in results.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Upgrade => "upgrade",
            Self::Auth => "auth",
            Self::Ready => "ready",
        }
    }
}

/// Plain counts of one worker since its start; they only grow, but for the two gauges.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// `connect()` calls made.
    pub attempted: u64,
    /// TCP connections opened.
    pub opened: u64,
    /// Connections that became ready.
    pub became_ready: u64,
    /// Gauge: ready connections held now.
    pub ready: u64,
    /// Gauge: connections being established now.
    pub establishing: u64,
    /// Connections closed by us on purpose (drain, bisect).
    pub dropped: u64,
    /// Heartbeats that came due (for arriving heartbeats: that should have arrived).
    pub beats_sent: u64,
    /// Heartbeats answered (or arrived).
    pub beats_answered: u64,
    /// Heartbeats whose answer did not come within the patience, or whose connection ended first.
    pub beats_missed: u64,
    /// Messages of a talk that were sent.
    pub messages_sent: u64,
    /// Messages of a talk that were answered.
    pub messages_answered: u64,
    /// Bytes read from targets.
    pub bytes_in: u64,
    /// Bytes written to targets.
    pub bytes_out: u64,
    /// Failures by kind.
    pub failed: Tally,
}

impl Counters {
    /// Adds another worker's counters.
    pub fn merge(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.opened += other.opened;
        self.became_ready += other.became_ready;
        self.ready += other.ready;
        self.establishing += other.establishing;
        self.dropped += other.dropped;
        self.beats_sent += other.beats_sent;
        self.beats_answered += other.beats_answered;
        self.beats_missed += other.beats_missed;
        self.messages_sent += other.messages_sent;
        self.messages_answered += other.messages_answered;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.failed.merge(&other.failed);
    }
}

/// What one worker reports at one moment: counters since its start, latencies since its last report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counts since the worker's start.
    pub counters: Counters,
    /// Establishing latencies since the last report, one histogram per [`Phase`] in [`Phase::ALL`]'s order.
    pub phases: [Latencies; 5],
    /// Heartbeat latencies by intended time since the last report.
    pub beats: Latencies,
    /// Round trips of the verify pass since the last report.
    pub verify: Latencies,
    /// Messages of a talk, from their intended time until answered, since the last report.
    pub messages: Latencies,
    /// How late messages of a talk were sent since the last report.
    pub message_lag: Latencies,
    /// How old ready connections were when the target closed or reset them, since the last report.
    pub closed_age: Latencies,
    /// How long they had been quiet then: since they became ready, or their last heartbeat was due.
    pub closed_quiet: Latencies,
    /// How late the worker's own loop was against its schedule since the last report.
    pub lag: Latencies,
    /// CPU seconds used by the worker since its start.
    pub cpu_seconds: f64,
}

impl Sample {
    /// Takes the latencies out, for a report; the counters go on.
    pub fn take(&mut self) -> Self {
        let rest = Self { counters: self.counters.clone(), ..Self::default() };
        std::mem::replace(self, rest)
    }

    /// Adds the latencies of a later report of the same worker and takes over its counters.
    pub fn follow(&mut self, later: &Self) {
        self.counters = later.counters.clone();
        self.cpu_seconds = later.cpu_seconds;
        self.merge_latencies(later);
    }

    /// Adds another worker's sample.
    pub fn merge(&mut self, other: &Self) {
        self.counters.merge(&other.counters);
        self.cpu_seconds += other.cpu_seconds;
        self.merge_latencies(other);
    }

    fn merge_latencies(&mut self, other: &Self) {
        for (mine, theirs) in self.phases.iter_mut().zip(&other.phases) {
            mine.merge(theirs);
        }
        self.beats.merge(&other.beats);
        self.verify.merge(&other.verify);
        self.messages.merge(&other.messages);
        self.message_lag.merge(&other.message_lag);
        self.closed_age.merge(&other.closed_age);
        self.closed_quiet.merge(&other.closed_quiet);
        self.lag.merge(&other.lag);
    }
}

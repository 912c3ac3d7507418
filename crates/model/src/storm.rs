//! What is a storm, and what was seen of it? All connections come at one instant, are dropped, and come back.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{FailureKind, Tally};
use crate::histogram::{Latencies, Latency};
use crate::spec::Spec;

/// How the connections come, and come back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StormSpec {
    /// Into how many equal bursts the first round is cut; 1: all at one instant.
    pub bursts: u32,
    /// From one burst to the next.
    pub every_seconds: f64,
    /// Over how long the first round is evenly spread; 0: not at all.
    pub spread_seconds: f64,
    /// How long the connections stay away after they were dropped.
    pub away_seconds: f64,
    /// Back-off: how long one attempt may take before the next is made.
    pub attempt_seconds: f64,
    /// Back-off: a client waits a random part of this before its first attempt, of twice as much before its second, …
    pub backoff_seconds: f64,
    /// Back-off: it never waits longer than this.
    pub backoff_most_seconds: f64,
}

impl Default for StormSpec {
    fn default() -> Self {
        Self {
            bursts: 1,
            every_seconds: 1.0,
            spread_seconds: 0.0,
            away_seconds: 1.0,
            attempt_seconds: 3.0,
            backoff_seconds: 0.1,
            backoff_most_seconds: 10.0,
        }
    }
}

impl StormSpec {
    /// After how many seconds connection `number` of `connections` is due in a round without back-off.
    pub fn due_seconds(&self, kind: RoundKind, number: u64, connections: u64) -> f64 {
        let share = number as f64 / connections.max(1) as f64;
        match kind {
            RoundKind::First if self.spread_seconds > 0.0 => share * self.spread_seconds,
            RoundKind::First => (share * f64::from(self.bursts)).floor() * self.every_seconds,
            RoundKind::Return | RoundKind::Jitter => 0.0,
        }
    }

    /// The longest wait before attempt `attempt` (from 0) with back-off: it doubles up to the most.
    pub fn backoff_at_most(&self, attempt: u32) -> f64 {
        (self.backoff_seconds * 2f64.powi(attempt.min(64) as i32)).min(self.backoff_most_seconds)
    }

    /// How many connections of `connections` come at one instant in a round.
    pub fn burst(&self, kind: RoundKind, connections: u64) -> u64 {
        match kind {
            RoundKind::First => connections.div_ceil(u64::from(self.bursts.max(1))),
            RoundKind::Return | RoundKind::Jitter => connections,
        }
    }
}

/// Which round of a storm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoundKind {
    /// They come for the first time.
    #[default]
    First,
    /// Dropped, they all come back at one instant.
    Return,
    /// Dropped once more, they come back with full jitter, and what fails is tried again with exponential back-off.
    Jitter,
}

impl RoundKind {
    /// Every round in order.
    pub const ALL: [Self; 3] = [Self::First, Self::Return, Self::Jitter];

    /// What it is called in reports.
    pub const fn says(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Return => "return",
            Self::Jitter => "return with jitter",
        }
    }
}

/// What one worker saw of a round: made to be merged. A connection counts as ready here once its round trip came back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// From the round's instant until ready.
    pub ready_after: Latencies,
    /// From the intended time of the connection's first attempt until ready.
    pub ready: Latencies,
    /// From the round's instant until the round trip came back.
    pub verified_after: Latencies,
    /// From the intended time of the first attempt until the round trip came back.
    pub verified: Latencies,
    /// How late after its intended time each `connect()` was made.
    pub issued: Latencies,
    /// `connect()` calls made.
    pub attempts: u64,
    /// Attempts that failed, those that were made again included.
    pub attempts_failed: Tally,
}

impl Wave {
    /// Adds what another worker saw of the same round.
    pub fn merge(&mut self, other: &Self) {
        self.ready_after.merge(&other.ready_after);
        self.ready.merge(&other.ready);
        self.verified_after.merge(&other.verified_after);
        self.verified.merge(&other.verified);
        self.issued.merge(&other.issued);
        self.attempts += other.attempts;
        self.attempts_failed.merge(&other.attempts_failed);
    }

    /// After how many seconds the given share (above 0, to 1) of `connections` was ready; `None`: so many never were.
    pub fn reached_seconds(&self, share: f64, connections: u64) -> Option<f64> {
        let needed = ((share * connections as f64).ceil() as u64).max(1);
        let seen = self.ready_after.count();
        (needed <= seen).then(|| self.ready_after.quantile_ms(needed as f64 / seen as f64) / 1e3)
    }
}

/// What a storm came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StormResult {
    /// The rounds that were finished, in order.
    pub rounds: Vec<Round>,
}

/// One round: the connections came, and were held a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Which.
    pub kind: RoundKind,
    /// Connections that were to come.
    pub connections: u64,
    /// Its instant, from the start of the run.
    pub t_seconds: f64,
    /// How late the generator made its last `connect()` that was not held back by a failure; `None`: none was made.
    pub issued_seconds: Option<f64>,
    /// `connect()` calls made.
    pub attempts: u64,
    /// Attempts that failed, by kind, those that were made again included.
    pub attempts_failed: BTreeMap<FailureKind, u64>,
    /// Connections that became ready and made a round trip.
    pub ready: u64,
    /// Connections that failed in the end, by kind: while they came, or while they were held.
    pub failed: BTreeMap<FailureKind, u64>,
    /// Connections still held when they were dropped.
    pub held: u64,
    /// From the instant until the first was ready.
    pub first_ready_seconds: Option<f64>,
    /// From the instant until half were ready; `None`: so many never were.
    pub half_ready_seconds: Option<f64>,
    /// From the instant until 99% were ready.
    pub most_ready_seconds: Option<f64>,
    /// From the instant until all were ready.
    pub all_ready_seconds: Option<f64>,
    /// From the intended time of a connection's first attempt until it was ready.
    pub ready_latency: Option<Latency>,
    /// From that time until its first round trip came back.
    pub verified_latency: Option<Latency>,
    /// Connections that were ready only a second or more after their intended time: a SYN is sent again after one.
    pub late: u64,
    /// SYNs and SYN-ACKs sent again (rise of `TCPSynRetrans`).
    pub syn_retransmits: Option<u64>,
    /// Times the accept queue was full (rise of `ListenOverflows`).
    pub listen_overflows: Option<u64>,
    /// Connections dropped on a listening socket (rise of `ListenDrops`).
    pub listen_drops: Option<u64>,
    /// The most connections seen waiting in one accept queue.
    pub queue_most: Option<u64>,
    /// The most that one queue holds.
    pub backlog: Option<u64>,
    /// The round over time.
    pub moments: Vec<RoundMoment>,
}

impl Round {
    /// Attempts that were refused or reset: by nobody who listens, or by a full queue with `tcp_abort_on_overflow`.
    pub fn refusals(&self) -> u64 {
        let kinds = [FailureKind::Refused, FailureKind::Reset];
        kinds.iter().filter_map(|kind| self.attempts_failed.get(kind)).sum()
    }

    /// Connections that failed in the end.
    pub fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// One moment of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundMoment {
    /// Since the round's instant.
    pub t_seconds: f64,
    /// Connections that had become ready by then.
    pub ready: u64,
    /// Connections whose round trip had come back by then.
    pub verified: u64,
    /// Connections waiting in the fullest accept queue; `None`: it cannot be seen.
    pub queued: Option<u64>,
}

/// Numbers of the connections, over all workers, that fall to worker `index` of `workers`: every worker has some of
/// each burst.
pub fn numbers(total: u64, index: u32, workers: u32) -> impl Iterator<Item = u64> {
    let share = Spec::share(total, index, workers);
    (0..share).map(move |k| k * u64::from(workers.max(1)) + u64::from(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_round_comes_as_asked_and_the_others_at_one_instant() {
        let dues = |spec: StormSpec, kind| (0..8).map(|n| spec.due_seconds(kind, n, 8)).collect::<Vec<_>>();
        let once = StormSpec::default();
        assert_eq!(dues(once, RoundKind::First), [0.0; 8]);
        let bursts = StormSpec { bursts: 4, every_seconds: 2.0, ..once };
        assert_eq!(dues(bursts, RoundKind::First), [0.0, 0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0]);
        assert_eq!(dues(bursts, RoundKind::Return), [0.0; 8]);
        assert_eq!((bursts.burst(RoundKind::First, 9), bursts.burst(RoundKind::Return, 9)), (3, 9));
        let spread = StormSpec { spread_seconds: 4.0, ..once };
        assert_eq!(dues(spread, RoundKind::First), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
    }

    #[test]
    fn back_off_doubles_up_to_its_most() {
        let spec = StormSpec::default();
        let waits: Vec<f64> = (0..9).map(|attempt| spec.backoff_at_most(attempt)).collect();
        assert_eq!(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]);
        assert_eq!(spec.backoff_at_most(u32::MAX), 10.0);
    }

    #[test]
    fn a_share_is_reached_only_if_so_many_were_ready() {
        let mut wave = Wave::default();
        assert_eq!(wave.reached_seconds(0.5, 10), None);
        for ms in 1..=9u64 {
            wave.ready_after.record(ms * 100_000_000);
        }
        let close = |share: f64, seconds: f64| {
            let reached = wave.reached_seconds(share, 10).unwrap();
            assert!((reached - seconds).abs() < 0.01 * seconds, "{reached}");
        };
        close(0.0, 0.1);
        close(0.5, 0.5);
        close(0.9, 0.9);
        assert_eq!(wave.reached_seconds(0.99, 10), None);
        assert_eq!(wave.reached_seconds(1.0, 10), None);
    }

    proptest! {
        #[test]
        fn every_number_falls_to_one_worker(total in 0..2_000u64, workers in 1..20u32) {
            let mut all: Vec<u64> = (0..workers).flat_map(|w| numbers(total, w, workers)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..total).collect::<Vec<_>>());
        }
    }
}

//! How is a storm put into a table? A row for each round, the same in every output.

use model::storm::{Round, StormResult};
use model::units;

use crate::words::UNKNOWN;

/// The heads of the table; those that start with `<` are aligned to the left.
pub(crate) const HEADS: [&str; 12] = [
    "<round",
    "first",
    "half",
    "99%",
    "all ready",
    "verify p99",
    "late",
    "SYN retries",
    "refused",
    "overflows",
    "queue",
    "failed",
];

/// Of [`HEADS`], those that say how the connections came.
pub(crate) const CAME: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 11];

/// Of [`HEADS`], those that say what the target's kernel did meanwhile.
pub(crate) const QUEUED: [usize; 5] = [0, 7, 8, 9, 10];

/// What the first of them mean.
pub(crate) const CAME_NOTE: &str =
    "from each round's instant; late: a second or more after the intended time";

/// What the second of them mean.
pub(crate) const QUEUED_NOTE: &str = "of the target's kernel; queue: the most that waited to be accepted";

/// The cells of one round, in the order of [`HEADS`].
pub(crate) fn cells(round: &Round) -> [String; 12] {
    let after = |seconds: Option<f64>| seconds.map_or("never".to_owned(), |s| units::milliseconds(s * 1e3));
    let count = |n: Option<u64>| n.map_or(UNKNOWN.to_owned(), units::count);
    let queue = match (round.queue_most, round.backlog) {
        (Some(most), Some(backlog)) => format!("{} of {}", units::count(most), units::count(backlog)),
        (most, _) => count(most),
    };
    [
        round.kind.says().to_owned(),
        after(round.first_ready_seconds),
        after(round.half_ready_seconds),
        after(round.most_ready_seconds),
        after(round.all_ready_seconds),
        round.verified_latency.map_or(UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms)),
        units::count(round.late),
        count(round.syn_retransmits),
        units::count(round.refusals()),
        count(round.listen_overflows),
        queue,
        units::count(round.failed_total()),
    ]
}

/// How well the generator kept to the instant, in a sentence.
pub(crate) fn issued(storm: &StormResult) -> String {
    let each = storm.rounds.iter().filter_map(|round| {
        Some(format!("{} ({})", units::milliseconds(round.issued_seconds? * 1e3), round.kind.says()))
    });
    let each: Vec<String> = each.collect();
    let attempts = storm.rounds.iter().map(|round| round.attempts).sum();
    if each.is_empty() {
        return "no connect() was made".to_owned();
    }
    format!("{} connect() calls went out within {} of their time", units::count(attempts), each.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{FailureKind, RoundKind};

    use super::*;

    #[test]
    fn what_was_never_reached_or_not_seen_is_said() {
        let round = Round {
            kind: RoundKind::Jitter,
            connections: 10,
            half_ready_seconds: Some(0.25),
            queue_most: Some(129),
            backlog: Some(128),
            attempts_failed: BTreeMap::from([
                (FailureKind::Refused, 2),
                (FailureKind::Reset, 1),
                (FailureKind::ReadyTimeout, 5),
            ]),
            failed: BTreeMap::from([(FailureKind::ReadyTimeout, 5)]),
            ..Round::default()
        };
        assert_eq!(
            cells(&round),
            [
                "return with jitter",
                "never",
                "250 ms",
                "never",
                "never",
                "unknown",
                "0",
                "unknown",
                "3",
                "unknown",
                "129 of 128",
                "5"
            ]
        );
        assert_eq!(issued(&StormResult { rounds: vec![round] }), "no connect() was made");
    }
}

//! What does a storm say of the accept queue, and in the verdict?

use model::storm::{Round, RoundKind, StormResult};
use model::{RunResult, units};

use crate::{evidence, nice};

/// The rounds in which the accept queue overflowed and connections came late for it, or failed.
fn harmed(storm: &StormResult) -> impl Iterator<Item = &Round> {
    storm.rounds.iter().filter(|round| {
        let harm = round.late > 0 || round.failed_total() > 0 || !round.attempts_failed.is_empty();
        round.listen_overflows.is_some_and(|n| n > 0) && harm
    })
}

/// Whether overflows of the accept queue are why connections came late or failed.
pub(crate) fn explained_by_the_queue(storm: &StormResult) -> bool {
    harmed(storm).next().is_some()
}

/// The most connections that come at one instant in the rounds that the queue harmed; in any, if it harmed none.
pub(crate) fn burst(run: &RunResult) -> Option<u64> {
    let (asked, storm) = (run.spec.storm.as_ref()?, run.storm.as_ref()?);
    let of = |round: &Round| asked.burst(round.kind, round.connections);
    harmed(storm).map(of).max().or_else(|| storm.rounds.iter().map(of).max())
}

/// Over how many seconds the connections could come instead: twice what the server took for half of them.
pub(crate) fn unhurried_seconds(run: &RunResult) -> Option<u64> {
    let rounds = &run.storm.as_ref()?.rounds;
    let half = rounds.iter().filter_map(|r| r.half_ready_seconds).reduce(f64::max)?;
    Some(nice::up((4.0 * half).ceil() as u64).max(1))
}

/// What was read of the queue in each round.
pub(crate) fn queue_evidence(storm: &StormResult) -> Vec<String> {
    let said = |n: Option<u64>| n.map_or("unknown".to_owned(), units::count);
    let each = storm.rounds.iter().map(|round| {
        let mut line = format!(
            "{}: ListenOverflows rose by {}, TCPSynRetrans by {}; {} ready a second or more late",
            round.kind.says(),
            said(round.listen_overflows),
            said(round.syn_retransmits),
            units::count(round.late)
        );
        if let Some(most) = round.queue_most {
            line.push_str(&format!("; up to {} waited in one queue", units::count(most)));
        }
        if round.refusals() > 0 {
            line.push_str(&format!("; {} attempts were refused or reset", units::count(round.refusals())));
        }
        line
    });
    each.collect()
}

/// Rounds in which the generator's own `connect()` calls took most of the time: there the target may well be quicker.
pub(crate) fn slow_generator(storm: &StormResult) -> Vec<String> {
    const MOST_OF: f64 = 0.5;
    let slow = storm.rounds.iter().filter_map(|round| {
        let (issued, all) = (round.issued_seconds?, round.all_ready_seconds?);
        (issued >= MOST_OF * all && round.late == 0).then(|| {
            format!(
                "{}: the generator took {} of the {} until all were ready to make its connect() calls; the target may \
                 be quicker than that: use more CPUs or another machine to see",
                round.kind.says(),
                units::seconds(issued),
                units::seconds(all)
            )
        })
    });
    slow.collect()
}

/// The storm in words: "5,000 connections at one instant: half ready after 0.12 s, all after 1.30 s; …".
pub(crate) fn outcome(run: &RunResult, storm: &StormResult) -> String {
    let Some((first, others)) = storm.rounds.split_first() else {
        return "no round was finished".to_owned();
    };
    let mut out =
        format!("{} connections {}: {}", units::count(first.connections), came(run), ready(first, "ready"));
    for round in others {
        let how = match round.kind {
            RoundKind::Jitter => "with jitter",
            RoundKind::First | RoundKind::Return => "dropped and back at one instant",
        };
        out.push_str(&format!("; {how}, {}", ready(round, "back")));
    }
    out
}

fn came(run: &RunResult) -> String {
    match run.spec.storm {
        Some(storm) if storm.spread_seconds > 0.0 => format!("over {}", units::seconds(storm.spread_seconds)),
        Some(storm) if storm.bursts > 1 => {
            format!("in {} bursts {} apart", storm.bursts, units::seconds(storm.every_seconds))
        }
        _ => "at one instant".to_owned(),
    }
}

fn ready(round: &Round, word: &str) -> String {
    let never = round.connections.saturating_sub(round.ready);
    let mut out = match (round.half_ready_seconds, round.all_ready_seconds) {
        (Some(half), Some(all)) => {
            return lost(
                round,
                format!("half {word} after {}, all after {}", units::seconds(half), units::seconds(all)),
            );
        }
        (Some(half), None) => {
            format!("half {word} after {}, {} never", units::seconds(half), units::count(never))
        }
        (None, _) => format!("{} never {word}", units::count(never)),
    };
    let failed = evidence::failures_said(round.failed.iter().map(|(kind, n)| (*kind, *n)));
    if !failed.is_empty() {
        out.push_str(&format!(" ({failed})"));
    }
    out
}

/// Adds what was lost of those that had all become ready.
fn lost(round: &Round, out: String) -> String {
    let lost = round.connections.saturating_sub(round.held);
    if lost > 0 { format!("{out}, {} lost again", units::count(lost)) } else { out }
}

#[cfg(test)]
mod tests {
    use model::{FailureKind, StormSpec};

    use super::*;
    use crate::testing;

    fn round(kind: RoundKind) -> Round {
        Round {
            kind,
            connections: 10_000,
            ready: 10_000,
            held: 10_000,
            half_ready_seconds: Some(0.12),
            all_ready_seconds: Some(0.3),
            listen_overflows: Some(0),
            syn_retransmits: Some(0),
            queue_most: Some(70),
            backlog: Some(128),
            ..Round::default()
        }
    }

    fn stormy(rounds: Vec<Round>) -> RunResult {
        let mut run = testing::run();
        run.experiment = "storm".into();
        run.spec.storm = Some(StormSpec::default());
        run.spec.heartbeat_seconds = None;
        // A round is a stage of the same size.
        let last = run.stages[9].clone();
        run.stages = vec![last; rounds.len()];
        run.storm = Some(StormResult { rounds });
        run
    }

    fn overflowing() -> RunResult {
        let late = Round {
            late: 1_633,
            listen_overflows: Some(3_010),
            syn_retransmits: Some(1_633),
            all_ready_seconds: Some(7.2),
            queue_most: Some(129),
            ..round(RoundKind::First)
        };
        let mut run = stormy(vec![late, round(RoundKind::Return), round(RoundKind::Jitter)]);
        run.before.tcp.listen_overflows = Some(100);
        for stage in &mut run.stages {
            stage.tcp.listen_overflows = Some(3_110);
        }
        run.after.tcp.listen_overflows = Some(3_110);
        run
    }

    fn judged(mut run: RunResult) -> RunResult {
        analysis::conclude(&mut run);
        crate::judge(&mut run);
        run
    }

    #[test]
    fn a_healthy_storm_names_nothing() {
        let run = judged(stormy(RoundKind::ALL.map(round).to_vec()));
        assert_eq!(run.verdict.first_limit, None, "{}", run.verdict.sentence);
        assert!(run.verdict.held && run.verdict.trusted, "{}", run.verdict.sentence);
        assert!(
            run.verdict.sentence.starts_with(
                "10,000 connections at one instant: half ready after 0.12 s, all after 0.30 s; dropped and back at \
                 one instant, half back after 0.12 s, all after 0.30 s; with jitter, half back after 0.12 s"
            ),
            "{}",
            run.verdict.sentence
        );
        assert!(run.verdict.sentence.contains("; nothing broke"), "{}", run.verdict.sentence);
    }

    #[test]
    fn an_overflow_that_made_connections_late_is_named_with_a_backlog_for_the_burst() {
        let run = judged(overflowing());
        assert_eq!(run.verdict.first_limit.as_deref(), Some("listen.accept-queue"));
        let found = run.limits.iter().find(|f| f.id == "listen.accept-queue").unwrap();
        assert!(found.remedy.iter().any(|l| l.contains("12000")), "{:?}", found.remedy);
        assert!(
            found.remedy.contains(&"sysctl -w net.core.somaxconn=12000".to_owned()),
            "{:?}",
            found.remedy
        );
        assert!(found.evidence.iter().any(|l| l.starts_with("first: ListenOverflows rose by 3,010")));
        assert!(run.verdict.sentence.contains("all after 7.20 s"), "{}", run.verdict.sentence);

        let mut bursts = overflowing();
        bursts.spec.storm = Some(StormSpec { bursts: 5, ..StormSpec::default() });
        let run = judged(bursts);
        let found = run.limits.iter().find(|f| f.id == "listen.accept-queue").unwrap();
        assert!(
            found.remedy.contains(&"sysctl -w net.core.somaxconn=2400".to_owned())
                || found.remedy[0].contains("2400"),
            "a fifth of the connections come at one instant: {:?}",
            found.remedy
        );
        assert!(run.verdict.sentence.contains("in 5 bursts 1.00 s apart"), "{}", run.verdict.sentence);
    }

    #[test]
    fn a_generator_that_took_most_of_the_time_says_so() {
        let warned = |issued| {
            let mut run = stormy(RoundKind::ALL.map(round).to_vec());
            run.storm.as_mut().unwrap().rounds[1].issued_seconds = Some(issued);
            judged(run).warnings.iter().filter(|w| w.starts_with("return: the generator took")).count()
        };
        assert_eq!((warned(0.05), warned(0.28)), (0, 1));
    }

    #[test]
    fn an_overflow_that_harmed_nobody_is_not_to_blame() {
        let mut run = overflowing();
        run.storm.as_mut().unwrap().rounds[0].late = 0;
        assert_eq!(judged(run).verdict.first_limit, None);
    }

    #[test]
    fn those_that_never_came_are_told_with_their_kinds() {
        let mut run = overflowing();
        let first = &mut run.storm.as_mut().unwrap().rounds[0];
        first.ready = 9_000;
        first.all_ready_seconds = None;
        first.failed.insert(FailureKind::ConnectTimeout, 1_000);
        run.connections.verified = 9_000;
        run.connections.failed.insert(FailureKind::ConnectTimeout, 1_000);
        let run = judged(run);
        assert!(!run.verdict.held);
        assert_eq!(run.verdict.first_limit.as_deref(), Some("listen.accept-queue"));
        let said = "half ready after 0.12 s, 1,000 never (1,000 were never accepted by the target's kernel)";
        assert!(run.verdict.sentence.contains(said), "{}", run.verdict.sentence);
    }
}

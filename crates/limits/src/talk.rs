//! What does a talk say in the verdict, and did it go as asked?

use model::talk::TalkResult;
use model::{RunResult, units};

use crate::evidence;

/// Whether every client succeeded, and 99% of the answers came within the objective.
pub(crate) fn went_as_asked(run: &RunResult, talk: &TalkResult) -> bool {
    talk.succeeded == run.connections.requested && in_time(run, talk)
}

fn in_time(run: &RunResult, talk: &TalkResult) -> bool {
    talk.latency.is_some_and(|latency| latency.p99_ms <= run.spec.objective_seconds * 1e3)
}

/// The talk in words: "28,232 of 28,232 clients got all 20 answers, in 20.1 s where the schedule has 20.0 s; …".
pub(crate) fn outcome(run: &RunResult, talk: &TalkResult) -> String {
    let asked = run.connections.requested;
    let messages = run.spec.talk.map_or(0, |talk| u64::from(talk.messages));
    let mut out = format!(
        "{} of {} clients got all {} answers",
        units::count(talk.succeeded),
        units::count(asked),
        units::count(messages)
    );
    if talk.succeeded < asked {
        let failed = evidence::failures_said(run.connections.failed.iter().map(|(kind, n)| (*kind, *n)));
        if !failed.is_empty() {
            out.push_str(&format!(" ({failed})"));
        }
    }
    if let Some(seconds) = talk.seconds {
        let (took, ideal) = (units::seconds(seconds), units::seconds(talk.ideal_seconds));
        out.push_str(&format!(", in {took} where the schedule has {ideal}"));
    }
    if let Some(latency) = talk.latency {
        out.push_str(&format!("; p99 latency {}", units::milliseconds(latency.p99_ms)));
        if !in_time(run, talk) {
            let objective = units::seconds(run.spec.objective_seconds);
            out.push_str(&format!(", but the objective is {objective}"));
        }
    }
    out
}

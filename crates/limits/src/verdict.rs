//! What is the answer, in one sentence?

use analysis::validity::{self, Cause};
use model::result::{Finding, Purpose, Status, Verdict};
use model::{FailureKind, RunResult, units};

use crate::{
    churn, client_cpu, evidence, listen_accept_queue, listen_syn_queue, nice, pooler_queue, storm, sweep,
    talk, warnings,
};

/// Fills `verdict` and `warnings` from a run's `limits`; whatever stood there is replaced.
/// [`judge`](crate::judge) ends with it.
///
/// `held`: of a plain hold every connection was held and verified within the objective and none failed; of one
/// until it breaks, some size held; of a churn some cell met the objective; of a sweep no client was turned away or lost at any count. A way beside that did not
/// hold, or cannot be trusted, counts as well. `trusted`: no stage that decides was held back by the generator. `first_limit`: of the
/// limits that were hit, the one that explains what broke, a cause before its symptom.
pub fn verdict(result: &mut RunResult) {
    result.warnings = warnings::warnings(result);
    let distrust = distrust(result);
    let culprit = culprit(result, distrust.as_ref());
    result.verdict = Verdict {
        sentence: sentence(result, distrust.as_ref(), culprit),
        first_limit: culprit.map(|f| f.id.clone()),
        held: held(result) && result.beside.iter().all(|way| way.verdict.held),
        trusted: distrust.is_none() && result.beside.iter().all(|way| way.verdict.trusted),
    };
}

/// Whether the target held what was asked.
pub(crate) fn held(run: &RunResult) -> bool {
    if run.spec.churn.is_some() {
        return churn::held(run);
    }
    if run.spec.until_it_breaks {
        return run.line.connections > 0;
    }
    if let Some(seen) = &run.sweep {
        return sweep::held(seen);
    }
    let seen = &run.connections;
    seen.requested > 0
        && seen.verified == seen.requested
        && seen.held == seen.requested
        && seen.failed_total() == 0
        && run.line.connections >= seen.requested
        && match (&run.spec.talk, &run.talk) {
            (None, _) => true,
            (Some(_), Some(talk)) => talk::went_as_asked(run, talk),
            (Some(_), None) => false,
        }
}

/// Why the run says more of the generator than of the target.
struct Distrust {
    /// The deepest cause.
    cause: Cause,
    /// Stages with that cause, from 1.
    stages: Vec<usize>,
}

/// The stages that decide: the last one, the one that ended the line, and failed confirmations; of a sweep those without
/// which its peak is not known.
pub(crate) fn deciding(run: &RunResult) -> Vec<usize> {
    if let Some(seen) = &run.sweep {
        return sweep::deciding(seen);
    }
    let ended = analysis::line::failed_above(run, run.line.connections);
    let decides = |i: usize| {
        let stage = &run.stages[i];
        i + 1 == run.stages.len()
            || ended.is_some_and(|ended| std::ptr::eq(ended, stage))
            || (!stage.passed && stage.purpose == Purpose::Confirm)
    };
    (0..run.stages.len()).filter(|i| decides(*i)).collect()
}

fn distrust(run: &RunResult) -> Option<Distrust> {
    let cause = deciding(run).into_iter().find_map(|i| validity::causes(run, i).into_iter().next());
    let died = || run.workers.iter().any(|w| w.died.is_some()).then_some(Cause::WorkerDied);
    let own = || {
        let kinds = [FailureKind::NoPorts, FailureKind::NoDescriptors, FailureKind::NoMemory];
        let count_of = |kind| evidence::failures(run, &[kind]);
        let failed = kinds.into_iter().find(|kind| count_of(*kind) > 0 && run.stages.is_empty());
        failed.map(|kind| Cause::Failed { kind, count: count_of(kind) })
    };
    let cause = cause.or_else(died).or_else(own)?;
    let same = |other: &Cause| match (&cause, other) {
        (Cause::Failed { kind: a, .. }, Cause::Failed { kind: b, .. }) => a == b,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
    };
    let stages = (0..run.stages.len()).filter(|i| validity::causes(run, *i).iter().any(same)).map(|i| i + 1);
    let stages = stages.collect();
    Some(Distrust { cause, stages })
}

/// The limit that explains what broke. [`LIMITS`](crate::LIMITS) has causes before their symptoms.
fn culprit<'a>(run: &'a RunResult, distrust: Option<&Distrust>) -> Option<&'a Finding> {
    let hit = |id: &str| run.limits.iter().find(|f| f.id == id && f.status == Status::Hit);
    let late = distrust.is_some_and(|d| {
        matches!(d.cause, Cause::Throttled { .. } | Cause::Lagged { .. } | Cause::Filled { .. })
    });
    if late {
        return hit(client_cpu::ID);
    }
    let died = evidence::death(run).is_some();
    let broke = died || run.line.broke || !held(run);
    crate::LIMITS.iter().map(|limit| limit.facts().id).find_map(|id| {
        let explains = match id {
            client_cpu::ID => false,
            listen_accept_queue::ID => {
                !died && listen_accept_queue::explains(run) && !listen_syn_queue::outweighs_overflows(run)
            }
            // Every heartbeat may have come back, and yet nobody was served for a while.
            "server.stall" => !died,
            // They are hit only where clients waited for it, which may end well.
            "listen.syn-queue" | "server.accept-rate" | "server.handshake-cpu" => !died,
            // Nothing breaks, and yet throughput ends there.
            pooler_queue::ID => !died,
            // Only memory explains why a process is gone.
            _ if died => id.ends_with(".memory") || id == "server.heap",
            _ => broke,
        };
        hit(id).filter(|_| explains)
    })
}

fn sentence(run: &RunResult, distrust: Option<&Distrust>, culprit: Option<&Finding>) -> String {
    let mut out = String::new();
    if run.interrupted {
        out.push_str(&format!("interrupted after {}: ", units::seconds(run.seconds)));
    }
    if let Some(distrust) = distrust {
        let id = culprit.map_or(String::new(), |f| format!(" ({})", f.id));
        out.push_str(&format!("cannot be trusted: {}{id}; as far as it goes, ", said(run, distrust)));
    }
    out.push_str(&outcome(run, distrust));
    if run.heartbeat.missed > 0 {
        let (missed, sent) = (units::count(run.heartbeat.missed), units::count(run.heartbeat.sent));
        out.push_str(&format!("; {missed} of {sent} heartbeats were missed"));
    }
    match culprit {
        Some(culprit) => {
            if distrust.is_none() {
                out.push_str(&format!("; {}: {}", culprit.id, culprit.summary));
            }
            // neither a remark nor the head of a section, which lifts nothing by itself
            if let Some(line) = culprit.remedy.iter().find(|line| !line.starts_with(['#', '['])) {
                out.push_str(&format!("; lift it with `{}`", line.split(" # ").next().unwrap_or(line)));
            }
        }
        None if distrust.is_some() || run.interrupted || run.stages.is_empty() => {}
        None if evidence::death(run).is_some() => {}
        None if run.line.broke || !held(run) => out.push_str(if run.settings.target_hidden.is_some() {
            "; the target's processes cannot be seen, so no limit could be named"
        } else {
            "; no limit of the catalogue was seen to be met"
        }),
        None => {
            out.push_str("; nothing broke");
            if let Some(next) = next(run) {
                out.push_str(&next);
            }
        }
    }
    out
}

/// What would break next: the lowest ceiling above what was held.
fn next(run: &RunResult) -> Option<String> {
    let above = |f: &&Finding| f.ceiling_connections.is_some_and(|c| c > evidence::peak(run));
    let known = |f: &&Finding| matches!(f.status, Status::Near | Status::Clear);
    let next = run.limits.iter().filter(known).find(above)?;
    let about = units::count(nice::about(next.ceiling_connections?));
    Some(format!("; next would be {} at about {about}", next.id))
}

/// Why it cannot be trusted, and in which stages.
fn said(run: &RunResult, distrust: &Distrust) -> String {
    let why = match distrust.cause {
        Cause::Throttled { cpu_limit: Some(cpus), .. } => {
            format!("the generator was held back by its CPU quota ({cpus:.2} CPUs)")
        }
        Cause::Throttled { .. } => "the generator was held back by its CPU quota".to_owned(),
        Cause::Lagged { p99_ms, .. } => {
            format!("the generator's own loop ran late (p99 {})", units::milliseconds(p99_ms))
        }
        Cause::Filled { cpus, of_cpus } => {
            format!("the generator used {cpus:.2} of the {of_cpus:.2} CPUs that it can")
        }
        Cause::WorkerDied => match run.workers.iter().find_map(|w| w.died.as_deref()) {
            Some(how) => format!("a worker of the generator died ({how})"),
            None => "a worker of the generator died".to_owned(),
        },
        Cause::Failed { kind, .. } => {
            format!("{} connections {}", units::count(evidence::failures(run, &[kind])), kind.says())
        }
    };
    match ranges(&distrust.stages) {
        stages if stages.is_empty() => why,
        stages if distrust.stages.len() == 1 => format!("{why} in stage {stages}"),
        stages => format!("{why} in stages {stages}"),
    }
}

/// "3-10, 12" for rising numbers.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let written = runs.filter_map(|run| match run {
        [] => None,
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
    });
    written.collect::<Vec<_>>().join(", ")
}

/// What happened to the connections.
fn outcome(run: &RunResult, distrust: Option<&Distrust>) -> String {
    if let Some(death) = evidence::death(run) {
        return died(run, death);
    }
    if run.spec.churn.is_some() {
        return churn::outcome(run);
    }
    if let Some(seen) = run.storm.as_ref().filter(|seen| !seen.rounds.is_empty()) {
        return storm::outcome(run, seen);
    }
    if let Some(seen) = &run.talk {
        return talk::outcome(run, seen);
    }
    if let Some(seen) = run.sweep.as_ref().filter(|seen| !seen.points.is_empty()) {
        return sweep::outcome(run, seen);
    }
    if run.stages.is_empty() {
        let failed = failed(run, None);
        let why = if failed.is_empty() { String::new() } else { format!(": {failed}") };
        return format!("no stage was finished{why}");
    }
    if run.spec.until_it_breaks { line(run) } else { hold(run, distrust) }
}

fn line(run: &RunResult) -> String {
    let connections = units::count(run.line.connections);
    if run.line.connections == 0 {
        format!("there is no line: {}", run.line.reason)
    } else if run.line.broke {
        format!("the line is {connections}: {}", run.line.reason)
    } else if run.interrupted {
        format!("the line is at least {connections}")
    } else {
        format!("the line is at least {connections}, which is all that was asked")
    }
}

fn hold(run: &RunResult, distrust: Option<&Distrust>) -> String {
    let seen = &run.connections;
    let (requested, ready) = (units::count(seen.requested), units::count(seen.ready));
    let held_now = units::count(seen.held);
    let all = seen.held == seen.requested && seen.verified == seen.requested && seen.failed_total() == 0;
    if all {
        let whole = format!("held {held_now} of {requested} connections, every one verified");
        if held(run) {
            return whole;
        }
        let objective = units::seconds(run.spec.objective_seconds);
        return format!("{whole}, but not within the objective of {objective}: {}", run.line.reason);
    }
    let failed = failed(run, distrust);
    let all_ready = seen.ready >= seen.requested && seen.ready > seen.held;
    let what = if all_ready {
        format!("lost {} of {ready} held connections", units::count(seen.ready - seen.held))
    } else {
        format!("held {held_now} of {requested} connections")
    };
    if !failed.is_empty() {
        let kinds: Vec<FailureKind> = seen.failed.keys().copied().collect();
        let first = evidence::first_failure(run, &kinds);
        let at = first.map_or(String::new(), |t| format!(", first at {}", units::seconds(t)));
        return format!("{what}: {failed}{at}");
    }
    if run.interrupted || seen.verified >= seen.held {
        return what;
    }
    let verified = units::count(seen.verified);
    format!("{what}, of which the last verify pass reached {verified}")
}

/// The failures of the whole run in words, but for those that the distrust already tells.
fn failed(run: &RunResult, distrust: Option<&Distrust>) -> String {
    let told = |kind: FailureKind| match distrust.map(|d| d.cause) {
        Some(Cause::Failed { kind: own, .. }) => own == kind,
        Some(Cause::WorkerDied) => kind == FailureKind::WorkerDied,
        _ => false,
    };
    let failed = run.connections.failed.iter().map(|(kind, n)| (*kind, *n));
    evidence::failures_said(failed.filter(|(kind, _)| !told(*kind)))
}

fn died(run: &RunResult, death: evidence::Death) -> String {
    let at = death.t_seconds.map_or(String::new(), |t| format!(" at {}", units::seconds(t)));
    let failed = failed(run, None);
    let failed = match failed.split_once(' ') {
        Some((count, what)) => format!(": {count} connections {what},"),
        None => String::new(),
    };
    let gone = match death.after {
        None => " and it refuses new ones".to_owned(),
        Some(0) => " and its processes are gone".to_owned(),
        Some(left) => format!(" and {} of its {} processes are gone", death.before - left, death.before),
    };
    let whole = if death.after.is_some_and(|left| left > 0) { "part of the target" } else { "the target" };
    let line = if run.spec.until_it_breaks && run.line.connections > 0 {
        format!("; it had held {}", units::count(run.line.connections))
    } else {
        String::new()
    };
    format!("{whole} died{at}{failed}{gone}{line}")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn ranges_of_stages() {
        assert_eq!(ranges(&[3, 4, 5, 7, 9, 10]), "3-5, 7, 9-10");
        assert_eq!(ranges(&[]), "");
    }
}

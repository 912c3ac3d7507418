//! How deep may she be loaded? The largest stage that held.

use model::RunResult;
use model::result::{Line, Purpose, Stage};
use model::units;

/// The line of a run: the most connections of a stage that passed and was not disproved.
///
/// A stage is disproved by a later `Confirm` stage of its size or less that failed. The last stage of a plain
/// hold is disproved, too, if connections were lost while it was held, after its verify pass.
pub fn line(result: &RunResult) -> Line {
    let connections = standing(result).map(|s| s.ready).max().unwrap_or(0);
    let above = failed_above(result, connections);
    Line { connections, reason: reason(result, connections, above), broke: above.is_some() }
}

/// The failed stage that ended the line at `connections`: the smallest one above it (of several, the last).
///
/// A stage of the same size that failed when it was to be confirmed counts as well.
pub fn failed_above(result: &RunResult, connections: u64) -> Option<&Stage> {
    let failed = result.stages.iter().enumerate();
    let failed = failed.filter(|(i, s)| failed_at_last(result, *i) && s.connections >= connections);
    failed.map(|(_, s)| s).min_by_key(|s| s.connections)
}

/// Whether a stage failed its verify pass, or lost connections while it was held at the end of a plain hold.
fn failed_at_last(result: &RunResult, index: usize) -> bool {
    let stage = &result.stages[index];
    !stage.passed || lost_in_hold(result, index) > 0
}

/// How many connections the stage lost after it had passed: only the last one of a plain hold is held on.
fn lost_in_hold(result: &RunResult, index: usize) -> u64 {
    let last = index + 1 == result.stages.len();
    if !last || result.interrupted || result.spec.until_it_breaks {
        return 0;
    }
    result.stages[index].ready.saturating_sub(result.connections.held)
}

/// The stages that passed and were not disproved.
fn standing(result: &RunResult) -> impl Iterator<Item = &Stage> {
    result
        .stages
        .iter()
        .enumerate()
        .filter(|(i, s)| {
            let disproved = result.stages[i + 1..].iter().any(|later| {
                later.purpose == Purpose::Confirm && !later.passed && later.connections <= s.ready
            });
            s.passed && !disproved && lost_in_hold(result, *i) == 0
        })
        .map(|(_, s)| s)
}

fn reason(result: &RunResult, connections: u64, above: Option<&Stage>) -> String {
    let Some(above) = above else {
        return if result.stages.is_empty() {
            "no stage was finished".to_owned()
        } else if result.interrupted {
            format!("interrupted: {} is as far as it came, and nothing had failed", units::count(connections))
        } else {
            format!("every stage passed: {} is as far as was asked", units::count(connections))
        };
    };
    let size = units::count(above.connections);
    let why = match &above.why_failed {
        Some(why) => why.clone(),
        None if above.passed => "connections were lost while it was held".to_owned(),
        None => "not every connection was verified within the objective".to_owned(),
    };
    let blame = if above.valid { "" } else { "; the generator was the bottleneck in it" };
    let what = if above.purpose == Purpose::Confirm { "while held at" } else { "at" };
    let cut = if result.interrupted { "; interrupted before it was narrowed down" } else { "" };
    format!("{what} {size}, {why}{blame}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn as_far_as_was_asked() {
        let line = line(&testing::run(1_000, 5));
        assert_eq!((line.connections, line.broke), (1_000, false));
        assert_eq!(line.reason, "every stage passed: 1,000 is as far as was asked");
    }

    #[test]
    fn the_failed_stage_says_why() {
        let mut run = testing::run(1_000, 5);
        testing::fail(&mut run.stages[4], 990, "10 were reset");
        let line = line(&run);
        assert_eq!((line.connections, line.broke), (800, true));
        assert_eq!(line.reason, "at 1,000, 10 were reset");
    }

    #[test]
    fn a_failed_confirmation_lowers_it() {
        let mut run = testing::run(1_000, 5);
        run.spec.until_it_breaks = true;
        let mut again = run.stages[4].clone();
        again.purpose = Purpose::Confirm;
        testing::fail(&mut again, 998, "2 stopped answering");
        run.stages.push(again);
        let lowered = line(&run);
        assert_eq!((lowered.connections, lowered.broke), (800, true));
        assert_eq!(lowered.reason, "while held at 1,000, 2 stopped answering");

        let mut smaller = run.stages[4].clone();
        smaller.purpose = Purpose::Confirm;
        (smaller.connections, smaller.ready) = (980, 980);
        run.stages.push(smaller);
        assert_eq!(line(&run).connections, 980);
    }

    #[test]
    fn what_was_lost_while_held_is_not_held() {
        let mut run = testing::run(1_000, 5);
        run.connections.held = 900;
        let lost = line(&run);
        assert_eq!((lost.connections, lost.broke), (800, true));
        assert_eq!(lost.reason, "at 1,000, connections were lost while it was held");
        run.interrupted = true;
        assert_eq!(line(&run).connections, 1_000);
    }

    #[test]
    fn interrupted_runs_say_so() {
        let mut run = testing::run(1_000, 5);
        run.interrupted = true;
        assert!(line(&run).reason.starts_with("interrupted: 1,000 is as far"));
        run.stages.clear();
        assert_eq!(line(&run), Line { reason: "no stage was finished".into(), ..Line::default() });
    }
}

//! What follows from what was seen? All of a run's own conclusions, in their order.

use model::RunResult;

use crate::{churn, compare, cost, line, sweep, threshold, validity};

/// Fills the validity of stages, `cost`, `line`, what a sweep's curve says, `differences`, a churn's advice and `thresholds` from
/// what was seen, of the ways `beside` as well; whatever stood there is replaced.
///
/// The thresholds are asked of the whole: a way beside has none of its own.
///
/// `limits::judge` and `limits::verdict` follow it. Doing it twice changes nothing.
pub fn conclude(result: &mut RunResult) {
    conclude_one(result);
    result.beside.iter_mut().for_each(conclude_one);
    result.differences = compare::differences(result);
    result.thresholds = threshold::judge(result);
}

fn conclude_one(result: &mut RunResult) {
    validity::judge_stages(result);
    result.cost = cost::costs(result);
    result.line = line::line(result);
    let reading = sweep::reading(result);
    if let Some(sweep) = &mut result.sweep {
        sweep.reading = reading;
    }
    churn::advise(result);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn twice_is_once() {
        let mut run = testing::run(10_000, 7);
        testing::fail(&mut run.stages[6], 9_000, "1,000 were reset");
        run.spec.fail_if = vec!["failed > 0".into(), "verify.latency.p99_ms > 1s".into(), "oops".into()];
        conclude(&mut run);
        let once = run.clone();
        conclude(&mut run);
        assert_eq!(run, once);
        assert_eq!(run.line.connections, 8_571);
        assert_eq!(run.thresholds.len(), 3);
    }
}

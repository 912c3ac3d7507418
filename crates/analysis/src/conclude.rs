//! What follows from what was seen? All of a run's own conclusions, in their order.

use model::RunResult;

use crate::{cost, line, threshold, validity};

/// Fills the validity of stages, `cost`, `line` and `thresholds` from what was seen; whatever stood there is
/// replaced.
///
/// `limits::judge` and `limits::verdict` follow it. Doing it twice changes nothing.
pub fn conclude(result: &mut RunResult) {
    validity::judge_stages(result);
    result.cost = cost::costs(result);
    result.line = line::line(result);
    result.thresholds = threshold::judge(result);
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

//! Was it the target, or was it us? Which stages the generator itself held back.

use model::result::Stage;
use model::units;
use model::{FailureKind, RunResult};

/// The generator's lag may be this share of the objective before it decides what is measured.
const LAG_SHARE_OF_OBJECTIVE: f64 = 0.25;

/// Lag below this is the scheduler's ordinary grain, whatever the objective, in milliseconds.
const LAG_ALWAYS_FINE_MS: f64 = 50.0;

/// The share of a stage's time that the generator may be held back by its CPU quota.
const THROTTLED_SHARE: f64 = 0.2;

/// A worker is one thread: from this share of its CPU on it has no time left.
const THREAD_FULL: f64 = 0.95;

/// The same of all CPUs of the host.
const HOST_FULL: f64 = 0.95;

/// On a host that is full, the generator may take this share of what is busy.
const GENERATOR_SHARE: f64 = 2.0 / 3.0;

/// One way in which the generator was the bottleneck of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause {
    /// Its cgroup's CPU quota held it back.
    Throttled {
        /// Seconds for which it was held back, over all of its CPUs.
        throttled_seconds: f64,
        /// Length of the stage.
        stage_seconds: f64,
        /// CPUs that the quota allows; `None`: not readable.
        cpu_limit: Option<f64>,
    },
    /// Its loop ran late.
    Lagged {
        /// 99th percentile of the lag.
        p99_ms: f64,
        /// What would have been tolerated.
        tolerated_ms: f64,
    },
    /// While clients of a sweep worked, it used all the CPU that it can.
    Filled {
        /// CPUs that it used.
        cpus: f64,
        /// CPUs that it could have used at most.
        of_cpus: f64,
    },
    /// A worker died.
    WorkerDied,
    /// Connections failed for want of something on our side.
    Failed {
        /// `NoPorts`, `NoDescriptors` or `NoMemory`.
        kind: FailureKind,
        /// How many.
        count: u64,
    },
}

impl Cause {
    /// What was seen and what to do about it, as one sentence without a full stop.
    pub fn says(&self) -> String {
        match *self {
            Self::Throttled { throttled_seconds, stage_seconds, cpu_limit } => {
                let quota = match cpu_limit {
                    Some(cpus) => format!("its CPU quota ({cpus:.2} CPUs)"),
                    None => "its CPU quota".to_owned(),
                };
                format!(
                    "the generator was held back by {quota} for {} of the stage's {}; give it more CPU or \
                     run it on another machine",
                    units::seconds(throttled_seconds),
                    units::seconds(stage_seconds)
                )
            }
            Self::Lagged { p99_ms, tolerated_ms } => format!(
                "the generator's own loop ran late (p99 {}, tolerated {}); give it more CPU, fewer \
                 connections on this machine, or another machine",
                units::milliseconds(p99_ms),
                units::milliseconds(tolerated_ms)
            ),
            Self::Filled { cpus, of_cpus } => format!(
                "the generator used {cpus:.2} of the {of_cpus:.2} CPUs that it can; give it more --workers, more \
                 CPU, or another machine"
            ),
            Self::WorkerDied => {
                "a worker of the generator died; see how it ended, and run again with fewer connections \
                    per worker"
                    .to_owned()
            }
            Self::Failed { kind, count } => {
                let lift = match kind {
                    FailureKind::NoPorts => "add source addresses with --source",
                    FailureKind::NoDescriptors => "add --workers or raise the generator's descriptor limit",
                    _ => "hold fewer on this machine, or use another machine",
                };
                format!("{} connections {}; {lift}", units::count(count), kind.says())
            }
        }
    }
}

/// Sets `valid` and `why_invalid` of every stage from what was seen of the generator.
pub fn judge_stages(result: &mut RunResult) {
    for index in 0..result.stages.len() {
        let says: Vec<String> = causes(result, index).iter().map(Cause::says).collect();
        let stage = &mut result.stages[index];
        stage.valid = says.is_empty();
        stage.why_invalid = (!stage.valid).then(|| says.join("; "));
    }
}

/// Why the generator was the bottleneck of stage `index`, the deepest cause first; empty: it was not.
///
/// A quota makes a loop late, so throttling stands before lag. A worker whose death no stage counted as lost
/// connections is charged to the last stage. An `index` without a stage has no causes.
pub fn causes(result: &RunResult, index: usize) -> Vec<Cause> {
    let Some(stage) = result.stages.get(index) else { return Vec::new() };
    let mut causes = Vec::new();
    causes.extend(throttling(result, index).filter(|(share, _)| *share > THROTTLED_SHARE).map(|(_, c)| c));
    causes.extend(lag(result, stage).filter(|(share, _)| *share > 1.0).map(|(_, c)| c));
    if causes.is_empty() && index + 1 == result.stages.len() {
        causes.extend(late_messages(result).filter(|(share, _)| *share > 1.0).map(|(_, c)| c));
    }
    if causes.is_empty() {
        causes.extend(filled(result, index));
    }
    let lost = stage.failed.contains_key(&FailureKind::WorkerDied);
    let uncounted = index + 1 == result.stages.len()
        && result.workers.iter().any(|w| w.died.is_some())
        && !result.stages.iter().any(|s| s.failed.contains_key(&FailureKind::WorkerDied));
    if lost || uncounted {
        causes.push(Cause::WorkerDied);
    }
    for kind in [FailureKind::NoPorts, FailureKind::NoDescriptors, FailureKind::NoMemory] {
        let count = stage.failed.get(&kind).copied().unwrap_or(0);
        if count > 0 {
            causes.push(Cause::Failed { kind, count });
        }
    }
    causes
}

/// How much of what is tolerated of lag and throttling the stage used up: above 1.0 it is invalid.
/// `None`: neither was read.
pub fn strain(result: &RunResult, index: usize) -> Option<f64> {
    let stage = result.stages.get(index)?;
    let throttled = throttling(result, index).map(|(share, _)| share / THROTTLED_SHARE);
    let lagged = lag(result, stage).map(|(share, _)| share);
    throttled.into_iter().chain(lagged).reduce(f64::max)
}

/// The share of the stage for which the quota held the generator back.
fn throttling(result: &RunResult, index: usize) -> Option<(f64, Cause)> {
    let stage = &result.stages[index];
    let cgroup = stage.generator.as_ref()?.cgroup.as_ref()?;
    let earlier = match index.checked_sub(1) {
        Some(previous) => result.stages[previous].generator.as_ref(),
        None => result.before.generator.as_ref(),
    };
    let before = earlier?.cgroup.as_ref()?.throttled_seconds?;
    let throttled_seconds = (cgroup.throttled_seconds? - before).max(0.0);
    let stage_seconds = stage.seconds + stage.verify_seconds + stage.idle.map_or(0.0, |i| i.seconds);
    let cause = Cause::Throttled { throttled_seconds, stage_seconds, cpu_limit: cgroup.cpu_limit };
    (stage_seconds > 0.0).then(|| (throttled_seconds / stage_seconds, cause))
}

/// The loop's 99th percentile of lag, as a share of what is tolerated.
fn lag(result: &RunResult, stage: &Stage) -> Option<(f64, Cause)> {
    Some(lagged(result, stage.generator_lag?.p99_ms))
}

/// The same of the messages of a talk: by how much they were sent late. The last stage ends with the talk.
fn late_messages(result: &RunResult) -> Option<(f64, Cause)> {
    Some(lagged(result, result.talk.as_ref()?.schedule_lag?.p99_ms))
}

/// Whether the generator had no CPU left while the clients of a sweep worked: its threads were full, or the host was, and
/// mostly with it.
fn filled(result: &RunResult, index: usize) -> Option<Cause> {
    let point = result.sweep.as_ref()?.points.iter().find(|point| point.stage == index)?;
    let seconds = Some(point.cpu.seconds).filter(|seconds| *seconds > 0.0)?;
    let cpus = point.cpu.generator_cpu_seconds? / seconds;
    let threads: u32 = result.workers.iter().map(|worker| worker.processes).sum();
    let of_threads = f64::from(threads);
    if threads > 0 && cpus >= THREAD_FULL * of_threads {
        return Some(Cause::Filled { cpus, of_cpus: of_threads });
    }
    let busy = point.host_cpu_seconds? / seconds;
    let of_host = f64::from(result.host.cpus);
    let full = result.host.cpus > 0 && busy >= HOST_FULL * of_host;
    (full && cpus >= GENERATOR_SHARE * busy).then_some(Cause::Filled { cpus, of_cpus: of_host })
}

fn lagged(result: &RunResult, p99_ms: f64) -> (f64, Cause) {
    let tolerated_ms = (result.spec.objective_seconds * 1e3 * LAG_SHARE_OF_OBJECTIVE).max(LAG_ALWAYS_FINE_MS);
    (p99_ms / tolerated_ms, Cause::Lagged { p99_ms, tolerated_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use model::Latency;
    use model::observation::Cgroup;

    fn why(run: &mut RunResult, index: usize) -> Option<String> {
        judge_stages(run);
        assert_eq!(run.stages[index].valid, run.stages[index].why_invalid.is_none());
        run.stages[index].why_invalid.clone()
    }

    #[test]
    fn a_quiet_generator_is_trusted() {
        let mut run = testing::run(1_000, 5);
        run.stages[0].valid = false;
        assert_eq!(why(&mut run, 0), None);
        assert!(strain(&run, 0).unwrap() < 0.1);
    }

    #[test]
    fn lag_counts_against_the_objective_and_never_below_50_ms() {
        let mut run = testing::run(1_000, 5);
        let lag = |ms| Some(Latency { p99_ms: ms, ..Latency::default() });
        run.stages[1].generator_lag = lag(260.0);
        run.stages[2].generator_lag = lag(240.0);
        assert!(why(&mut run, 1).unwrap().contains("p99 260 ms, tolerated 250 ms"));
        assert_eq!(why(&mut run, 2), None);
        run.spec.objective_seconds = 0.01;
        run.stages[3].generator_lag = lag(49.0);
        assert_eq!(why(&mut run, 3), None);
    }

    #[test]
    fn the_quota_stands_first_as_the_cause() {
        let mut run = testing::run(1_000, 5);
        let throttled =
            |s: f64| Some(Cgroup { throttled_seconds: Some(s), cpu_limit: Some(0.1), ..Cgroup::default() });
        run.before.generator.as_mut().unwrap().cgroup = throttled(100.0);
        for (i, s) in [100.0, 102.5, 102.6, 102.7, 102.8].into_iter().enumerate() {
            run.stages[i].generator.as_mut().unwrap().cgroup = throttled(s);
        }
        run.stages[1].generator_lag = Some(Latency { p99_ms: 900.0, ..Latency::default() });
        assert_eq!(why(&mut run, 0), None);
        let says = why(&mut run, 1).unwrap();
        assert!(
            says.starts_with("the generator was held back by its CPU quota (0.10 CPUs) for 2.50 s of"),
            "{says}"
        );
        assert!(says.contains("ran late"));
        assert_eq!(why(&mut run, 2), None);
    }

    #[test]
    fn our_own_failures_make_it_ours() {
        let mut run = testing::run(1_000, 5);
        run.stages[4].failed.insert(FailureKind::NoPorts, 772);
        run.stages[3].failed.insert(FailureKind::Reset, 5);
        assert!(
            why(&mut run, 4).unwrap().starts_with("772 connections found no local port left; add source")
        );
        assert_eq!(why(&mut run, 3), None);
    }

    #[test]
    fn a_dead_worker_is_charged_to_its_stage_or_to_the_last() {
        let mut run = testing::run(1_000, 5);
        run.workers[0].died = Some("signal 9".into());
        assert!(why(&mut run, 4).unwrap().contains("worker"));
        run.stages[2].failed.insert(FailureKind::WorkerDied, 10);
        assert!(why(&mut run, 2).is_some());
        assert_eq!(why(&mut run, 4), None);
    }
}

//! What does one held connection cost each side?
//!
//! Never a total divided by N: a slope over the good stages (passed, and measured by a generator that kept
//! up), so that what a process needs before its first connection is not charged to the connections.

use model::observation::HostReading;
use model::result::{Cost, Costs, CpuCost, Stage};
use model::{Estimate, Group, Observation, RunResult};

use crate::slope::slope;

/// Costs per connection of both sides, fitted over the good stages; x is `ready`, the connections held.
///
/// Memory is fitted only over stages that held more than every stage before them: one that shrank would read
/// memory that a larger one left behind. All other figures use every good stage. `None` with fewer than two.
///
/// Where both ends share one kernel (`settings.same_host`) its memory cannot be told apart:
/// `shared_kernel_bytes_per_connection` is then for both ends of a connection, and neither side has its own.
pub fn costs(result: &RunResult) -> Costs {
    let kernel = over(&growing(result), |s| kernel_of(&s.host));
    let same_host = result.settings.same_host;
    let mut target = side(result, |s| s.target.as_ref(), |s| s.idle?.target_cpu_seconds);
    let mut generator = side(result, |s| s.generator.as_ref(), |s| s.idle?.generator_cpu_seconds);
    if !same_host {
        generator.kernel_bytes_per_connection = kernel;
        let far = |s: &Stage| kernel_of(&s.target_host.as_ref()?.host);
        target.kernel_bytes_per_connection = over(&growing(result), far);
    }
    target.peak_user_bytes = peak(result, |o| o.target.as_ref(), |s| s.target.as_ref())
        .max(result.series.iter().filter_map(|m| m.target_user_bytes).max());
    generator.peak_user_bytes = peak(result, |o| o.generator.as_ref(), |s| s.generator.as_ref())
        .max(result.series.iter().filter_map(|m| m.generator_user_bytes).max());
    Costs { target, generator, shared_kernel_bytes_per_connection: kernel.filter(|_| same_host) }
}

/// The good stages that held more than every stage before them, good or not: what memory is fitted over.
pub fn growing(result: &RunResult) -> Vec<&Stage> {
    let mut most = 0;
    let mut out = Vec::new();
    for stage in &result.stages {
        if stage.ready > most {
            most = stage.ready;
            if stage.passed && stage.valid {
                out.push(stage);
            }
        }
    }
    out
}

/// The slope of a reading over the given stages, per connection; stages without that reading are left out.
pub fn over(stages: &[&Stage], reading: impl Fn(&Stage) -> Option<f64>) -> Option<Estimate> {
    let points: Vec<(f64, f64)> =
        stages.iter().filter_map(|s| reading(s).map(|y| (s.ready as f64, y))).collect();
    slope(&points)
}

/// Kernel memory of a host at a stage's end: its objects, and what lies in socket buffers.
fn kernel_of(host: &HostReading) -> Option<f64> {
    Some((host.slab_bytes? + host.socket_buffer_bytes?) as f64)
}

/// One side's figures, but for kernel memory and the peak.
fn side(
    result: &RunResult,
    group: impl Fn(&Stage) -> Option<&Group>,
    idle_cpu_seconds: impl Fn(&Stage) -> Option<f64>,
) -> Cost {
    let good: Vec<&Stage> = result.good_stages().collect();
    let cpus = |s: &Stage| {
        let seconds = s.idle?.seconds;
        idle_cpu_seconds(s).filter(|_| seconds > 0.0).map(|cpu| cpu / seconds)
    };
    Cost {
        user_bytes_per_connection: over(&growing(result), |s| group(s)?.user_bytes.map(|b| b as f64)),
        kernel_bytes_per_connection: None,
        descriptors_per_connection: over(&good, |s| group(s)?.descriptors.map(|d| d as f64)),
        threads_per_connection: over(&good, |s| Some(group(s)?.threads as f64)),
        cpu_seconds_per_second: CpuCost {
            idle_stage: result.stages.iter().rev().find(|s| s.idle.is_some()).and_then(cpus),
            per_connection: over(&good, cpus),
        },
        peak_user_bytes: None,
    }
}

/// The most user memory that one side was seen with in stages and observations.
fn peak(
    result: &RunResult,
    observed: impl Fn(&Observation) -> Option<&Group>,
    staged: impl Fn(&Stage) -> Option<&Group>,
) -> Option<u64> {
    let ends = [&result.before, &result.after].into_iter().filter_map(observed);
    ends.chain(result.stages.iter().filter_map(staged)).filter_map(|g| g.user_bytes).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn each_side_gets_its_own_slope() {
        let costs = costs(&testing::run(10_000, 10));
        let target = costs.target;
        assert_eq!(target.user_bytes_per_connection.unwrap().value, 3_000.0);
        assert_eq!(target.descriptors_per_connection.unwrap().value, 1.0);
        assert_eq!(target.threads_per_connection.unwrap().value, 0.0);
        assert_eq!(target.peak_user_bytes, Some(5_000_000 + 30_000_000));
        assert_eq!(target.kernel_bytes_per_connection, None);
        assert_eq!(costs.generator.user_bytes_per_connection.unwrap().value, 200.0);
        assert_eq!(costs.shared_kernel_bytes_per_connection.unwrap().value, 5_500.0);
        assert_eq!(costs.shared_kernel_bytes_per_connection.unwrap().stages, 10);
        let per_connection = target.cpu_seconds_per_second.per_connection.unwrap().value;
        assert!((per_connection - 1e-5).abs() < 1e-12);
        assert!((target.cpu_seconds_per_second.idle_stage.unwrap() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn elsewhere_the_kernel_is_the_generators() {
        let mut run = testing::run(1_000, 5);
        run.settings.same_host = false;
        let costs = costs(&run);
        assert_eq!(costs.shared_kernel_bytes_per_connection, None);
        assert_eq!(costs.generator.kernel_bytes_per_connection.unwrap().value, 5_500.0);
        assert_eq!(costs.target.kernel_bytes_per_connection, None);
    }

    #[test]
    fn stages_that_cannot_be_trusted_are_left_out() {
        let mut run = testing::run(1_000, 5);
        run.stages[2].passed = false;
        run.stages[3].valid = false;
        assert_eq!(costs(&run).target.user_bytes_per_connection.unwrap().stages, 3);
        for stage in &mut run.stages[1..] {
            stage.passed = false;
        }
        assert_eq!(costs(&run).target.user_bytes_per_connection, None);
        assert_eq!(costs(&run).target.descriptors_per_connection, None);
    }

    #[test]
    fn memory_that_a_larger_stage_left_behind_is_not_fitted() {
        let mut run = testing::run(1_000, 5);
        let mut smaller = run.stages[1].clone();
        smaller.target.as_mut().unwrap().user_bytes = run.stages[4].target.as_ref().unwrap().user_bytes;
        run.stages.push(smaller);
        let target = costs(&run).target;
        assert_eq!(target.user_bytes_per_connection.unwrap().stages, 5);
        assert_eq!(target.descriptors_per_connection.unwrap().stages, 6);
    }

    #[test]
    fn what_cannot_be_seen_costs_nothing_known() {
        let mut run = testing::run(1_000, 5);
        for stage in &mut run.stages {
            stage.target = None;
            stage.idle = None;
        }
        run.before.target = None;
        run.after.target = None;
        run.series.clear();
        assert_eq!(costs(&run).target, Cost::default());
    }
}

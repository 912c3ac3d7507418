//! When was the target as busy as it can be, and what belongs to which stage?

use model::RunResult;
use model::result::{Moment, Stage};

/// From this share of what may be used on, it is used up.
const FULL: f64 = 0.95;

/// CPUs that the target may use: its cgroup's quota, or all of its host.
pub(crate) fn allowed(run: &RunResult) -> f64 {
    let quota = run.before.target.as_ref().and_then(|g| g.cgroup.as_ref()).and_then(|c| c.cpu_limit);
    let host = f64::from(run.host.cpus.max(1));
    quota.map_or(host, |quota| quota.min(host))
}

/// Whether one thread does nearly all of the target's work: then it can use one CPU, however many there are.
pub(crate) fn single_threaded(run: &RunResult) -> bool {
    /// Below this the coarseness of ticks decides.
    const TELLING_CPUS: f64 = 0.1;
    let mut shares: Vec<f64> = run
        .series
        .iter()
        .filter_map(|m| Some((m.target_busiest_cpus?, m.target_cpus?)))
        .filter(|(_, all)| *all >= TELLING_CPUS)
        .map(|(busiest, all)| busiest / all)
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).is_some_and(|median| *median >= 0.9)
}

/// CPUs that the target can fill: what it may use, and one where one thread does all the work.
pub(crate) fn usable(run: &RunResult) -> f64 {
    if single_threaded(run) { allowed(run).min(1.0) } else { allowed(run) }
}

/// How the target was full at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// One thread had a CPU to itself all the time.
    Thread,
    /// All CPUs that it may use were in use.
    All,
}

/// Whether the target was full since the moment before; `None`: not full, or not to be seen.
pub(crate) fn full(run: &RunResult, moment: &Moment) -> Option<Full> {
    let all = moment.target_cpus.is_some_and(|cpus| cpus >= FULL * allowed(run));
    let thread = moment.target_busiest_cpus.is_some_and(|cpus| cpus >= FULL);
    if all { Some(Full::All) } else { thread.then_some(Full::Thread) }
}

/// The moments that fall into a stage: up to where the next one begins.
pub(crate) fn moments(run: &RunResult, index: usize) -> impl Iterator<Item = &Moment> {
    let from = run.stages[index].t_seconds;
    let to = run.stages.get(index + 1).map_or(f64::INFINITY, |next| next.t_seconds);
    run.series.iter().filter(move |m| m.t_seconds > from && m.t_seconds <= to && m.doing != "drain")
}

/// How long a stage took from its first connection to its end.
pub(crate) fn seconds(stage: &Stage) -> f64 {
    stage.seconds + stage.verify_seconds + stage.idle.map_or(0.0, |idle| idle.seconds)
}

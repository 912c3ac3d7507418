//! For tests: what can be done to a run's server.

use model::observation::{Cgroup, Heap};
use model::result::{CpuUse, Moment};
use model::{FailureKind, Latency, RunResult};

use crate::{busy, testing};

/// A moment of the run, a second after the one before it, in which so many connections are ready.
fn moment(t_seconds: f64, doing: &str, ready: u64) -> Moment {
    Moment { t_seconds, doing: doing.into(), ready, ..Moment::default() }
}

/// Lets the target take so many threads for each connection, in a cgroup that allows it `most`, of which it
/// stands at all wherever a stage failed.
pub(crate) fn threads(run: &mut RunResult, each: u64, most: u64) {
    let of = |n: u64, full: bool| {
        let threads = 3 + each * n;
        let pids = if full { most } else { threads };
        let path = "/app".into();
        (
            threads,
            Some(Cgroup {
                path,
                pids: Some(pids),
                pids_limit: Some(most),
                pids_limit_file: Some("/sys/fs/cgroup/app/pids.max".into()),
                ..Cgroup::default()
            }),
        )
    };
    let before = run.before.target.as_mut().unwrap();
    (before.threads, before.cgroup) = of(0, false);
    for stage in &mut run.stages {
        let group = stage.target.as_mut().unwrap();
        (group.threads, group.cgroup) = of(stage.ready, !stage.passed);
    }
}

/// Makes the target a virtual machine; `used` gives what its heap holds by connections, and `collecting` the
/// share of each stage's time that its collections take.
pub(crate) fn heap(run: &mut RunResult, max: u64, used: impl Fn(u64) -> u64, collecting: f64) {
    let mut collections = 7;
    let mut heap = |n, seconds: f64| {
        collections += 1;
        Some(Heap {
            source: "/tmp/hsperfdata_app/77".into(),
            used_bytes: used(n),
            max_bytes: Some(max),
            collections: Some(collections),
            collection_seconds: Some(seconds),
        })
    };
    let mut seconds = 0.5;
    run.before.target.as_mut().unwrap().heap = heap(0, seconds);
    for stage in &mut run.stages {
        seconds += collecting * busy::seconds(stage);
        stage.target.as_mut().unwrap().heap = heap(stage.ready, seconds);
    }
}

/// Lets the target use so many CPUs, and its busiest thread so many, throughout the last stage.
pub(crate) fn work(run: &mut RunResult, cpus: f64, busiest: f64) {
    let (from, ready) = run.stages.last().map(|s| (s.t_seconds, s.ready)).unwrap();
    run.series.extend((1..=3).map(|second| Moment {
        target_cpus: Some(cpus),
        target_busiest_cpus: Some(busiest),
        ..moment(from + f64::from(second), "settle", ready)
    }));
}

/// Held connections that the target closed, all after `quiet_ms` without a word and at about `age_ms`.
pub(crate) fn closed_at_one_age(run: &mut RunResult, count: u64, quiet_ms: (f64, f64), age_ms: (f64, f64)) {
    testing::lose(run, FailureKind::Closed, count);
    let spread = |(p50_ms, p90_ms)| Some(Latency { count, p50_ms, p90_ms, ..Latency::default() });
    (run.connections.closed_quiet, run.connections.closed_age) = (spread(quiet_ms), spread(age_ms));
}

/// Heartbeats that stop in the hold for `seconds` and are then all answered, up to so late.
pub(crate) fn stall(run: &mut RunResult, seconds: u32) {
    let beat = |t: u32, answered: u64, max_ms: f64| Moment {
        beats_answered: answered,
        beat_p50_ms: (answered > 0).then_some(max_ms / 2.0),
        beat_max_ms: (answered > 0).then_some(max_ms),
        generator_lag_ms: Some(1.0),
        ..moment(40.0 + f64::from(t), "hold", 1_000)
    };
    let late = f64::from(seconds) * 1e3 + 150.0;
    run.series.extend((0..3).map(|t| beat(t, 100, 4.0)));
    run.series.extend((3..3 + seconds).map(|t| beat(t, 0, 0.0)));
    run.series.push(beat(3 + seconds, 100 * u64::from(seconds), late));
    run.series.extend((4 + seconds..7 + seconds).map(|t| beat(t, 100, 4.0)));
}

/// A queue that never empties while the only thread that accepts is full, for so many moments.
pub(crate) fn accept_slowly(run: &mut RunResult, moments: u32) {
    run.series.extend((1..=moments).map(|second| Moment {
        accept_queue: Some(120),
        target_cpus: Some(0.99),
        target_busiest_cpus: Some(0.98),
        listen_overflows: Some(0),
        ..moment(f64::from(second), "establish", 100)
    }));
}

/// Handshakes that keep the target busy with so many CPUs while connections come, and take up most of their
/// time.
pub(crate) fn handshakes(run: &mut RunResult, phase: &str, cpus: f64) {
    run.establish.phases.insert(phase.into(), testing::latency(600.0));
    run.establish.phases.insert("ready".into(), testing::latency(700.0));
    for stage in &mut run.stages {
        let seconds = stage.seconds;
        let target_cpu_seconds = Some(cpus * seconds);
        stage.establishing = Some(CpuUse { seconds, target_cpu_seconds, generator_cpu_seconds: Some(0.1) });
    }
}

//! For tests: a sweep of a server whose law is known.

use model::observation::ServerView;
use model::result::CpuUse;
use model::sweep::{SLICES, SweepPoint, SweepResult, SweepSpec};
use model::talk::Arrivals;
use model::{FailureKind, Latency, RunResult};

use crate::testing;

/// How long each count is measured.
pub(crate) const SECONDS: f64 = 10.0;

/// So many servers that take 20 ms for an operation each.
pub(crate) fn servers(c: f64) -> impl Fn(f64) -> f64 {
    move |n| n.min(c) * 50.0
}

fn point(stage: usize, clients: u64, per_second: f64) -> SweepPoint {
    let operations = (per_second * SECONDS) as u64;
    let until = |slice: u64| slice * operations / SLICES as u64;
    let slices = (0..SLICES as u64).map(|slice| until(slice + 1) - until(slice)).collect();
    let mean_ms = clients as f64 / per_second * 1e3;
    SweepPoint {
        stage,
        clients,
        connected: clients,
        served: clients,
        t_seconds: stage as f64 * 15.0 + 2.0,
        seconds: SECONDS,
        operations,
        slices,
        latency: Some(Latency {
            count: operations,
            mean_ms,
            p50_ms: mean_ms,
            p95_ms: mean_ms,
            p99_ms: mean_ms * 1.2,
            max_ms: mean_ms * 2.0,
            ..Latency::default()
        }),
        cpu: CpuUse { seconds: SECONDS, target_cpu_seconds: Some(6.0), generator_cpu_seconds: Some(2.0) },
        host_cpu_seconds: Some(9.0),
        ..SweepPoint::default()
    }
}

/// A sweep over these counts in which a law says how many operations a second are answered.
pub(crate) fn swept(counts: &[u64], law: impl Fn(f64) -> f64) -> RunResult {
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut run = testing::sized(most, 1);
    run.experiment = "sweep".into();
    run.spec.heartbeat_seconds = None;
    run.heartbeat = model::result::Heartbeat::default();
    run.spec.sweep = Some(SweepSpec {
        clients: counts.to_vec(),
        adaptive: false,
        warm_up_seconds: 1.0,
        measure_seconds: SECONDS,
        repeat: 1,
        rate_per_second: None,
        arrivals: Arrivals::Constant,
        label: "direct".into(),
    });
    let stages = counts.iter().enumerate().map(|(i, n)| {
        let mut stage = testing::sized(*n, 1).stages.remove(0);
        stage.t_seconds = i as f64 * 15.0;
        stage.latency = None;
        stage.idle = None;
        stage
    });
    run.stages = stages.collect();
    let points = counts.iter().enumerate().map(|(i, n)| point(i, *n, law(*n as f64))).collect();
    run.sweep = Some(SweepResult { points, ..SweepResult::default() });
    run
}

/// Lets a pooler with a pool of this size say who waits, and the server behind it how many connections it takes.
pub(crate) fn pooled(run: &mut RunResult, pool: u64, max_connections: Option<u64>) {
    for point in &mut run.sweep.as_mut().unwrap().points {
        let used = point.clients.min(pool);
        point.servers = vec![ServerView {
            source: "SHOW POOLS at 127.0.0.1:6432".into(),
            connections: Some(point.clients),
            waiting: Some(point.clients - used),
            longest_wait_seconds: Some(0.2),
            server_connections: Some(used),
            pool_limit: Some(pool),
            ..ServerView::default()
        }];
        point.servers.extend(max_connections.map(|limit| ServerView {
            source: "pg_stat_activity at 127.0.0.1:5432".into(),
            connections: Some(used),
            limit: Some(limit),
            reserved: Some(3),
            ..ServerView::default()
        }));
    }
}

/// Lets the server refuse all but so many at the given count.
pub(crate) fn refused(run: &mut RunResult, index: usize, taken: u64, words: &str) {
    let point = &mut run.sweep.as_mut().unwrap().points[index];
    let turned_away = point.clients - taken;
    (point.connected, point.served) = (taken, taken);
    point.failed_example.insert(FailureKind::ServerRefused, words.into());
    let last = index + 1 == run.stages.len();
    testing::fail(&mut run.stages[index], FailureKind::ServerRefused, turned_away);
    run.connections.failed.insert(FailureKind::ServerRefused, turned_away);
    run.connections.failed_example.insert(FailureKind::ServerRefused, words.into());
    if last {
        (run.connections.held, run.connections.verified) = (taken, taken);
    }
}

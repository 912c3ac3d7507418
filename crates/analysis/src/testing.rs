//! For tests: a plausible run in which nothing broke, made from literals.

use std::collections::BTreeMap;

use model::observation::HostReading;
use model::result::{
    Connections, Costs, CpuUse, Establish, Heartbeat, Host, Line, Purpose, Stage, TargetSeen, Verdict,
    Verify, WorkerSeen,
};
use model::{Group, Latency, Observation, RunResult, Settings, Spec, Target};

/// What the target costs here: user bytes per connection, and before the first one.
const TARGET: (u64, u64) = (3_000, 5_000_000);
/// The same of the generator.
const GENERATOR: (u64, u64) = (200, 4_000_000);

fn group((each, base): (u64, u64), n: u64) -> Group {
    Group {
        processes: 1,
        user_bytes: Some(base + each * n),
        descriptors: Some(10 + n),
        most_descriptors: Some(10 + n),
        threads: 3,
        ..Group::default()
    }
}

fn host(n: u64) -> HostReading {
    HostReading {
        memory_available_bytes: Some(20 << 30),
        slab_bytes: Some(100_000_000 + 5_000 * n),
        socket_buffer_bytes: Some(500 * n),
        ..HostReading::default()
    }
}

fn latency(p99_ms: f64) -> Latency {
    Latency { count: 100, p50_ms: p99_ms / 2.0, p99_ms, max_ms: p99_ms * 2.0, ..Latency::default() }
}

fn observation(n: u64) -> Observation {
    Observation {
        target: Some(group(TARGET, n)),
        generator: Some(group(GENERATOR, n)),
        host: host(n),
        ..Observation::default()
    }
}

/// A hold of `n` connections over `stages` stages against a target on the same host; all passed.
pub(crate) fn run(n: u64, stages: u32) -> RunResult {
    let spec = Spec {
        stages,
        patience_seconds: 5.0,
        ..Spec::new(Target::parse("tcp://127.0.0.1:7000").unwrap(), n)
    };
    let staged = spec.stage_sizes().into_iter().enumerate().map(|(i, n)| stage(i, n)).collect();
    RunResult {
        plimsoll: "0.1.0".into(),
        schema: 1,
        experiment: "hold".into(),
        started_at: "2026-08-01T12:00:00Z".into(),
        seconds: 40.0,
        command: vec![],
        host: Host { cpus: 2, memory_bytes: 24 << 30, ..Host::default() },
        target: TargetSeen { url: spec.target.to_string(), ..TargetSeen::default() },
        workers: vec![WorkerSeen { share: n, processes: 1, ..WorkerSeen::default() }],
        settings: Settings { same_host: true, ..Settings::default() },
        before: observation(0),
        after: observation(n),
        connections: Connections {
            requested: n,
            opened: n,
            ready: n,
            held: n,
            verified: n,
            ..Connections::default()
        },
        establish: Establish::default(),
        heartbeat: Heartbeat::default(),
        verify: Verify { latency: Some(latency(4.0)), ..Verify::default() },
        stages: staged,
        storm: None,
        talk: None,
        sweep: None,
        beside: vec![],
        differences: vec![],
        churn: None,
        series: vec![],
        interrupted: false,
        cost: Costs::default(),
        line: Line::default(),
        limits: vec![],
        warnings: vec![],
        thresholds: vec![],
        verdict: Verdict::default(),
        spec,
    }
}

fn stage(index: usize, n: u64) -> Stage {
    Stage {
        target_host: None,
        servers: vec![],
        purpose: Purpose::Ramp,
        connections: n,
        t_seconds: index as f64 * 3.0,
        seconds: 1.0,
        established: n,
        ready: n,
        verified: n,
        failed: BTreeMap::new(),
        verify_seconds: 1.0,
        latency: Some(latency(4.0)),
        ready_latency: Some(latency(9.0)),
        generator_lag: Some(latency(2.0)),
        target: Some(group(TARGET, n)),
        generator: Some(group(GENERATOR, n)),
        host: host(n),
        tcp: model::observation::TcpCounters::default(),
        listener: None,
        establishing: None,
        idle: Some(CpuUse {
            seconds: 1.0,
            target_cpu_seconds: Some(n as f64 * 1e-5),
            generator_cpu_seconds: Some(n as f64 * 2e-5),
        }),
        passed: true,
        why_failed: None,
        valid: true,
        why_invalid: None,
    }
}

/// Makes a stage one that verified only so many, for the given reason.
pub(crate) fn fail(stage: &mut Stage, verified: u64, why: &str) {
    stage.passed = false;
    stage.verified = verified;
    stage.why_failed = Some(why.to_owned());
}

/// An evenly spread number from 0 to 1: tests must not depend on the machine.
pub(crate) fn even(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1_u64 << 53) as f64
}

/// A normally spread number with a standard deviation of 1 (twelve even ones).
pub(crate) fn normal(seed: &mut u64) -> f64 {
    (0..12).map(|_| even(seed)).sum::<f64>() - 6.0
}

//! For tests: a plausible run in which nothing broke, and what can be done to it.

use std::collections::BTreeMap;

use model::observation::{Cgroup, HostReading, HostSettings, Listener, ProcessSettings, TcpCounters};
use model::result::{
    Connections, Costs, CpuUse, Establish, Finding, Heartbeat, Host, Line, Moment, ProcessSeen, Purpose,
    Stage, TargetSeen, Verdict, Verify, WorkerSeen,
};
use model::{FailureKind, Group, Latency, Observation, RunResult, Settings, Spec, Target};

/// 10,000 connections in 10 stages to a server on the same host, with 20,000 descriptors; all passed.
pub(crate) fn run() -> RunResult {
    sized(10_000, 10)
}

/// A hold of `n` connections over `stages` stages; all passed.
pub(crate) fn sized(n: u64, stages: u32) -> RunResult {
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
        seconds: 60.0,
        command: vec![],
        host: Host { name: "box".into(), kernel: "6.18".into(), cpus: 2, memory_bytes: 24 << 30 },
        target: TargetSeen {
            host: None,
            url: spec.target.to_string(),
            addresses: vec!["127.0.0.1:7000".into()],
            processes: vec![ProcessSeen { pid: 77, name: "server".into(), role: "listens".into() }],
        },
        workers: vec![WorkerSeen { share: n, processes: 1, ..WorkerSeen::default() }],
        settings: settings(n),
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
        establish: Establish {
            seconds: 1.0,
            rate_per_second: 10_000.0,
            phases: BTreeMap::from([("tcp".to_owned(), latency(3.0))]),
        },
        heartbeat: Heartbeat {
            interval_seconds: Some(10.0),
            sent: 3 * n,
            answered: 3 * n,
            missed: 0,
            latency: Some(latency(2.0)),
        },
        verify: Verify { seconds: 0.1, rate_per_second: 1e5, latency: Some(latency(4.0)) },
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

fn settings(n: u64) -> Settings {
    Settings {
        target_host: None,
        host: HostSettings {
            port_range: Some((32_768, 60_999)),
            reserved_ports: 0,
            somaxconn: Some(4_096),
            tcp_max_syn_backlog: Some(4_096),
            conntrack_max: Some(262_144),
            tcp_mem_pages: Some([287_901, 383_868, 575_802]),
            file_max: Some(2_466_177),
            nr_open: Some(1_048_576),
            ..HostSettings::default()
        },
        worker: ProcessSettings {
            nofile_soft: Some(20_000),
            nofile_hard: Some(20_000),
            ..ProcessSettings::default()
        },
        target: vec![ProcessSettings {
            pid: 77,
            name: "server".into(),
            nofile_soft: Some(20_000),
            nofile_hard: Some(20_000),
            descriptors: Some(7),
            nproc_soft: None,
        }],
        target_hidden: None,
        same_host: true,
        sources: (0..n.div_ceil(14_116)).map(|k| format!("127.0.0.{}", k + 2)).collect(),
        connections_per_source: 14_116,
        sources_available: 16_777_214,
        destinations: 1,
        worker_base_descriptors: 16,
    }
}

/// Only what a doctor has: settings and the readings before.
pub(crate) fn doctor(asked: u64) -> RunResult {
    let mut run = sized(asked, 10);
    run.stages.clear();
    run.connections = Connections::default();
    run.establish = Establish::default();
    run.heartbeat = Heartbeat::default();
    run.verify = Verify::default();
    run.after = Observation::default();
    run.workers.clear();
    run
}

pub(crate) fn latency(p99_ms: f64) -> Latency {
    Latency { count: 100, p50_ms: p99_ms / 2.0, p99_ms, max_ms: p99_ms * 2.0, ..Latency::default() }
}

fn group(each: u64, base: u64, n: u64) -> Group {
    Group {
        processes: 1,
        user_bytes: Some(base + each * n),
        descriptors: Some(7 + n),
        most_descriptors: Some(7 + n),
        threads: 3,
        ..Group::default()
    }
}

fn observation(n: u64) -> Observation {
    let stage = stage(0, n);
    Observation {
        target_host: None,
        servers: vec![],
        target: stage.target,
        generator: stage.generator,
        host: stage.host,
        tcp: stage.tcp,
        listener: stage.listener,
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
        target: Some(group(1_000, 5_000_000, n)),
        generator: Some(group(200, 4_000_000, n)),
        host: HostReading {
            memory_available_bytes: Some((20_u64 << 30).saturating_sub(6_700 * n)),
            slab_bytes: Some(100_000_000 + 5_000 * n),
            socket_buffer_bytes: Some(500 * n),
            files: Some(1_000 + 2 * n),
            conntrack: Some(50 + n),
            cpu_busy_seconds: Some(70.0 + index as f64 * 0.6),
            oom_kills: Some(3),
            memory_pressure_seconds: Some(1.0),
            ..HostReading::default()
        },
        tcp: TcpCounters {
            listen_overflows: Some(40),
            listen_drops: Some(41),
            request_queue_drops: Some(1),
            syn_cookies: Some(2),
            aborts_on_memory: Some(5),
            memory_pressures: Some(2),
            ..TcpCounters::default()
        },
        listener: Some(Listener { sockets: 1, queued: 0, backlog: 128 }),
        establishing: None,
        idle: Some(CpuUse { seconds: 1.0, target_cpu_seconds: Some(0.1), generator_cpu_seconds: Some(0.1) }),
        passed: true,
        why_failed: None,
        valid: true,
        why_invalid: None,
    }
}

/// Turns a run into a search that tried these sizes against a server that holds only `line`, failing as
/// `kind`.
pub(crate) fn broken_at(line: u64, sizes: &[(u64, Purpose)], kind: FailureKind) -> RunResult {
    let mut run = sized(100_000, 10);
    run.spec.until_it_breaks = true;
    let stages = sizes.iter().enumerate().map(|(i, &(asked, purpose))| {
        let mut stage = stage(i, asked.min(line));
        stage.purpose = purpose;
        stage.connections = asked;
        if asked > line {
            fail(&mut stage, kind, asked - line);
        }
        stage
    });
    run.stages = stages.collect();
    run.after = observation(line);
    (run.connections.ready, run.connections.held, run.connections.verified) = (line, line, line);
    total_failures(&mut run);
    run
}

/// The sizes that a search against a line of 987 tries.
pub(crate) fn search_of_987() -> Vec<(u64, Purpose)> {
    let ramp = [250, 500, 1_000].map(|n| (n, Purpose::Ramp));
    let bisect = [987, 996, 991].map(|n| (n, Purpose::Bisect));
    ramp.into_iter().chain(bisect).chain([(987, Purpose::Confirm)]).collect()
}

/// Makes a stage fail: `count` of its connections failed as `kind`.
pub(crate) fn fail(stage: &mut Stage, kind: FailureKind, count: u64) {
    stage.failed.insert(kind, count);
    stage.passed = false;
    stage.verified = stage.connections - count;
    stage.ready = stage.verified;
    let (verified, asked) = (stage.verified, stage.connections);
    stage.why_failed = Some(format!("{verified} of {asked} were verified: {count} {}", kind.says()));
}

/// Makes the last stage of a plain hold fail, and the run's counts with it.
pub(crate) fn fail_last(run: &mut RunResult, kind: FailureKind, count: u64) {
    fail(run.stages.last_mut().unwrap(), kind, count);
    let n = run.connections.requested - count;
    (run.connections.ready, run.connections.held, run.connections.verified) = (n, n, n);
    total_failures(run);
}

/// Sums the stages' failures up into the run's.
fn total_failures(run: &mut RunResult) {
    for stage in &run.stages {
        for (kind, n) in &stage.failed {
            *run.connections.failed.entry(*kind).or_default() += n;
        }
    }
}

/// Gives the target's process a descriptor limit, and the readings of a server that stands at it where it
/// failed.
pub(crate) fn nofile(run: &mut RunResult, limit: u64) {
    run.settings.target[0].nofile_soft = Some(limit);
    for stage in run.stages.iter_mut().filter(|s| !s.passed) {
        stage.target.as_mut().unwrap().most_descriptors = Some(limit);
    }
}

/// Connections that are lost at 12.3 s while held.
pub(crate) fn lose(run: &mut RunResult, kind: FailureKind, count: u64) {
    run.connections.failed.insert(kind, count);
    run.connections.held -= count;
    run.series.push(Moment { t_seconds: 11.3, ..Moment::default() });
    run.series.push(Moment { t_seconds: 12.3, failed: BTreeMap::from([(kind, count)]), ..Moment::default() });
}

/// Puts the target into a cgroup with a memory limit; `used` gives its usage by connections.
pub(crate) fn memory_limit(run: &mut RunResult, limit: u64, used: impl Fn(u64) -> u64) {
    let cgroup = |n| {
        Some(Cgroup {
            path: "/app".into(),
            memory_bytes: Some(used(n)),
            memory_limit_bytes: Some(limit),
            memory_limit_file: Some("/sys/fs/cgroup/app/memory.max".into()),
            oom_kills: Some(0),
            ..Cgroup::default()
        })
    };
    let held = run.connections.held;
    for (group, n) in [(&mut run.before.target, 0), (&mut run.after.target, held)] {
        if let Some(group) = group {
            group.cgroup = cgroup(n);
        }
    }
    for stage in &mut run.stages {
        stage.target.as_mut().unwrap().cgroup = cgroup(stage.ready);
    }
}

/// Puts the generator into a cgroup of its own with a memory limit; `used` gives its usage by connections.
pub(crate) fn generator_memory_limit(run: &mut RunResult, limit: u64, used: impl Fn(u64) -> u64) {
    let cgroup = |n| {
        Some(Cgroup {
            path: "/load".into(),
            memory_bytes: Some(used(n)),
            memory_limit_bytes: Some(limit),
            memory_limit_file: Some("/sys/fs/cgroup/load/memory.max".into()),
            oom_kills: Some(0),
            ..Cgroup::default()
        })
    };
    let held = run.connections.held;
    run.before.generator.as_mut().unwrap().cgroup = cgroup(0);
    run.after.generator.as_mut().unwrap().cgroup = cgroup(held);
    for stage in &mut run.stages {
        stage.generator.as_mut().unwrap().cgroup = cgroup(stage.ready);
    }
}

/// Lets both sides keep so many CPUs busy over a stage (from 2), and the host a tenth more, by its counters.
pub(crate) fn busy(run: &mut RunResult, number: usize, target: f64, generator: f64) {
    const STAGE_SECONDS: f64 = 3.0;
    let earlier = run.stages[number - 2].clone();
    let stage = &mut run.stages[number - 1];
    let used = |before: Option<Group>, cpus: f64| before.unwrap().cpu_seconds + cpus * STAGE_SECONDS;
    let host = earlier.host.cpu_busy_seconds.unwrap() + (target + generator + 0.1) * STAGE_SECONDS;
    stage.host.cpu_busy_seconds = Some(host);
    stage.target.as_mut().unwrap().cpu_seconds = used(earlier.target, target);
    stage.generator.as_mut().unwrap().cpu_seconds = used(earlier.generator, generator);
}

/// Opens 2,000 connections in each stage, in 0.1 s up to 14,116 (half of the range) and in `seconds` past it,
/// with so many CPU seconds of the generator.
pub(crate) fn open_at(run: &mut RunResult, seconds: f64, cpu_seconds: f64) {
    for stage in &mut run.stages {
        stage.established = 2_000;
        let past = stage.ready > 14_116;
        stage.establishing = Some(CpuUse {
            seconds: if past { seconds } else { 0.1 },
            target_cpu_seconds: Some(0.05),
            generator_cpu_seconds: Some(if past { cpu_seconds } else { 0.05 }),
        });
    }
}

/// Lets a CPU quota of 0.1 CPUs hold the generator back in the given stages (from 1).
pub(crate) fn throttle(run: &mut RunResult, stages: std::ops::RangeInclusive<usize>) {
    let mut throttled = 7.0;
    let cgroup = |s| {
        Some(Cgroup {
            throttled_seconds: Some(s),
            cpu_limit: Some(0.1),
            cpu_limit_file: Some("/sys/fs/cgroup/cpu/load/cpu.cfs_quota_us".into()),
            ..Cgroup::default()
        })
    };
    run.before.generator.as_mut().unwrap().cgroup = cgroup(throttled);
    for (i, stage) in run.stages.iter_mut().enumerate() {
        if stages.contains(&(i + 1)) {
            throttled += 2.5;
        }
        stage.generator.as_mut().unwrap().cgroup = cgroup(throttled);
    }
}

/// Nothing of the target's side can be seen.
pub(crate) fn hide_target(run: &mut RunResult) {
    run.settings.target.clear();
    run.settings.target_hidden = Some("it runs elsewhere; start plimsoll on its host".into());
    run.settings.same_host = false;
    run.target.addresses = vec!["192.0.2.1:7000".into()];
    run.target.processes.clear();
    (run.before.target, run.after.target) = (None, None);
    (run.before.listener, run.after.listener) = (None, None);
    for stage in &mut run.stages {
        (stage.target, stage.listener) = (None, None);
    }
}

/// Nothing of the host's own figures and counters can be read.
pub(crate) fn blind(run: &mut RunResult) {
    for observation in [&mut run.before, &mut run.after] {
        (observation.host, observation.tcp) = (HostReading::default(), TcpCounters::default());
    }
    for stage in &mut run.stages {
        (stage.host, stage.tcp) = (HostReading::default(), TcpCounters::default());
    }
}

/// Concludes and judges a run as the binary does.
pub(crate) fn concluded(mut run: RunResult) -> RunResult {
    analysis::conclude(&mut run);
    crate::judge(&mut run);
    run
}

/// The finding of one limit, of a run that is concluded here.
pub(crate) fn finding(run: RunResult, id: &str) -> Finding {
    concluded(run).limits.into_iter().find(|f| f.id == id).unwrap()
}

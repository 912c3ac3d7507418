//! Limits of the server itself: each where it bounds, where it only looks so, and where it is told from
//! others.

use model::observation::Cgroup;
use model::result::{CpuUse, Purpose, Status};
use model::{FailureKind, RunResult};

use crate::server_testing as server;
use crate::testing::{self, concluded, finding};

fn first(run: RunResult) -> Option<String> {
    concluded(run).verdict.first_limit
}

fn status(run: RunResult, id: &str) -> Status {
    finding(run, id).status
}

#[test]
fn threads_bound_a_server_that_takes_one_for_each() {
    let mut run = testing::run();
    server::threads(&mut run, 1, 20_003);
    let found = finding(run.clone(), "server.threads");
    assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(20_000)));
    assert_eq!((found.ceiling_low, found.ceiling_high), (Some(20_000), Some(20_000)));
    assert!(found.remedy.contains(&"TasksMax=20003".to_owned()), "{:?}", found.remedy);
    server::threads(&mut run, 2, 20_003);
    let near = finding(run.clone(), "server.threads");
    assert_eq!((near.status, near.ceiling_connections), (Status::Near, Some(10_000)));
    assert!(
        near.remedy.contains(&"echo 25000 > /sys/fs/cgroup/app/pids.max".to_owned()),
        "{:?}",
        near.remedy
    );
    // The lowest of all maxima bounds it.
    run.settings.host.pid_max = Some(9_000);
    run.before.host.tasks = Some(1_000);
    let pids = finding(run.clone(), "server.threads");
    assert_eq!(pids.ceiling_connections, Some(4_000));
    assert!(pids.remedy[0].starts_with("sysctl -w kernel.threads-max=25000 "), "{:?}", pids.remedy);
    run.settings.target[0].nproc_soft = Some(1_003);
    let user = finding(run, "server.threads");
    assert_eq!(user.ceiling_connections, Some(500));
    assert_eq!(user.remedy[0], "for pid in 77; do prlimit --pid $pid --nproc=25000:25000; done");
    assert!(user.remedy.contains(&"LimitNPROC=25000".to_owned()), "{:?}", user.remedy);
}

#[test]
fn descriptors_do_not_bound_a_server_that_takes_a_process_for_each() {
    let mut run = testing::run();
    server::threads(&mut run, 1, 20_003);
    assert!(finding(run.clone(), "server.nofile").ceiling_connections.is_some(), "threads share descriptors");
    for group in run.stages.iter_mut().filter_map(|s| s.target.as_mut()).chain(run.after.target.as_mut()) {
        group.most_descriptors = Some(40);
    }
    let found = finding(run, "server.nofile");
    assert_eq!((found.status, found.ceiling_connections), (Status::Clear, None));
    assert!(found.summary.contains("a process of its own"), "{}", found.summary);
}

#[test]
fn threads_at_their_maximum_are_named_and_those_of_a_pool_are_not() {
    let sizes = [(500, Purpose::Ramp), (900, Purpose::Ramp), (2_000, Purpose::Ramp)];
    let mut run = testing::broken_at(997, &sizes, FailureKind::ClosedEarly);
    server::threads(&mut run, 1, 1_000);
    let found = finding(run.clone(), "server.threads");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(997)));
    assert_eq!(first(run.clone()).as_deref(), Some("server.threads"));
    // A maximum below what ran before the first connection is none.
    run.before.target.as_mut().unwrap().cgroup = None;
    run.settings.target[0].nproc_soft = Some(0);
    assert_eq!(status(run.clone(), "server.threads"), Status::Unknown);
    server::threads(&mut run, 0, 1_000);
    assert_eq!(status(run, "server.threads"), Status::Clear);
}

#[test]
fn a_heap_is_full_only_if_collections_or_connections_suffer() {
    let filling = |n: u64| 4_000_000 + n * 6_200;
    let mut run = testing::run();
    server::heap(&mut run, 64 << 20, filling, 0.01);
    let near = finding(run.clone(), "server.heap");
    assert_eq!(near.status, Status::Near);
    assert_eq!(near.ceiling_connections, Some((64 * 1024 * 1024 - 4_000_000) / 6_200));
    server::heap(&mut run, 64 << 20, filling, 0.25);
    let hit = finding(run.clone(), "server.heap");
    assert_eq!(hit.status, Status::Hit);
    assert!(hit.evidence.iter().any(|e| e.contains("25% of the time, at stage")), "{:?}", hit.evidence);
    server::heap(&mut run, 256 << 20, filling, 0.01);
    let clear = finding(run, "server.heap");
    assert_eq!(
        (clear.status, clear.ceiling_connections),
        (Status::Clear, Some((268_435_456 - 4_000_000) / 6_200))
    );
}

#[test]
fn the_heap_is_sized_for_what_was_asked() {
    let mut run = testing::broken_at(987, &testing::search_of_987(), FailureKind::Silent);
    server::heap(&mut run, 66_000_000, |n| 4_000_000 + n * 62_000, 0.5);
    let found = finding(run.clone(), "server.heap");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(1_000)));
    // (4 MB + 120,000 x 62 kB) / 0.7, in MiB and rounded up.
    assert!(found.remedy.contains(&"-Xmx11000m".to_owned()), "{:?}", found.remedy);
    assert_eq!(first(run).as_deref(), Some("server.heap"));
}

#[test]
fn garbage_before_the_first_connection_takes_no_room() {
    let mut run = testing::broken_at(987, &testing::search_of_987(), FailureKind::Silent);
    server::heap(&mut run, 66_000_000, |n| if n == 0 { 60_000_000 } else { 4_000_000 + n * 62_000 }, 0.5);
    let found = finding(run, "server.heap");
    assert_eq!(found.ceiling_connections, Some(1_000));
    assert!(found.evidence.iter().any(|e| e.ends_with("all else at most 3.81 MiB")), "{:?}", found.evidence);
}

#[test]
fn a_java_server_without_counters_is_unknown() {
    let mut run = testing::run();
    run.target.processes[0].name = "java".into();
    let found = finding(run, "server.heap");
    assert_eq!(found.status, Status::Unknown);
    assert!(found.summary.contains("-XX:+UsePerfData"), "{}", found.summary);
}

#[test]
fn a_full_cpu_is_a_limit_only_when_answers_are_late() {
    let mut run = testing::run();
    server::work(&mut run, 1.0, 0.99);
    assert_eq!(status(run.clone(), "server.cpu"), Status::Clear);
    let last = run.stages.last_mut().unwrap();
    last.passed = false;
    last.why_failed = Some("the slowest round trip took 1.70 s".into());
    last.latency = Some(testing::latency(1_700.0));
    let one = finding(run.clone(), "server.cpu");
    assert_eq!(one.status, Status::Hit);
    assert!(one.summary.contains("one thread of the target filled a CPU"), "{}", one.summary);
    assert!(
        one.evidence
            .contains(&"the target can use 1.00 CPUs: one thread does nearly all its work".to_owned())
    );
    assert_eq!(first(run.clone()).as_deref(), Some("server.cpu"));

    run.series.clear();
    server::work(&mut run, 1.95, 0.5);
    let all = finding(run.clone(), "server.cpu");
    assert!(all.summary.contains("all 2.00 CPUs"), "{}", all.summary);
    run.series.clear();
    assert_eq!(status(run, "server.cpu"), Status::Clear);
}

#[test]
fn a_cpu_ceiling_needs_a_slope_that_is_one() {
    let mut run = testing::run();
    for stage in &mut run.stages {
        stage.idle.as_mut().unwrap().target_cpu_seconds = Some(0.1 + stage.ready as f64 * 1e-4);
    }
    let found = finding(run.clone(), "server.cpu");
    assert!(found.ceiling_connections.is_some_and(|c| c.abs_diff(20_000) <= 1), "{found:?}");
    for stage in &mut run.stages {
        stage.idle.as_mut().unwrap().target_cpu_seconds = Some(0.1 + stage.ready as f64 * 1.75e-4);
    }
    assert_eq!(status(run.clone(), "server.cpu"), Status::Near);
    for (i, stage) in run.stages.iter_mut().enumerate() {
        stage.idle.as_mut().unwrap().target_cpu_seconds = Some([0.1, 0.12, 0.11][i % 3]);
    }
    assert_eq!(finding(run, "server.cpu").ceiling_connections, None);
}

#[test]
fn a_quota_of_the_target_is_named_with_its_line() {
    let mut run = testing::run();
    let cgroup = |s| {
        let path = "/app".into();
        Some(Cgroup {
            path,
            throttled_seconds: Some(s),
            cpu_limit: Some(0.5),
            cpu_limit_file: Some("/sys/fs/cgroup/app/cpu.max".into()),
            ..Cgroup::default()
        })
    };
    run.before.target.as_mut().unwrap().cgroup = cgroup(1.0);
    for stage in &mut run.stages {
        stage.target.as_mut().unwrap().cgroup = cgroup(1.0);
    }
    assert_eq!(status(run.clone(), "server.cpu"), Status::Clear);
    run.stages[9].target.as_mut().unwrap().cgroup = cgroup(2.5);
    testing::fail_last(&mut run, FailureKind::ReadyTimeout, 13);
    let found = finding(run, "server.cpu");
    assert_eq!(found.status, Status::Hit);
    assert!(found.summary.contains("its CPU quota held the target back for 50%"), "{}", found.summary);
    assert!(found.remedy.contains(&"CPUQuota=200%".to_owned()), "{:?}", found.remedy);
    assert!(found.remedy.contains(&"echo '200000 100000' > /sys/fs/cgroup/app/cpu.max".to_owned()));
}

#[test]
fn closings_at_one_quiet_time_are_a_timeout() {
    let mut run = testing::run();
    run.settings.target[0].name = "redis-server".into();
    server::closed_at_one_age(&mut run, 97, (30_000.0, 31_000.0), (30_500.0, 90_000.0));
    let found = finding(run.clone(), "server.idle-timeout");
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, None));
    assert_eq!(found.summary, "the server closes what was quiet for 30.0 s: 97 connections were closed");
    assert!(found.remedy.contains(&"redis-cli CONFIG SET timeout 0".to_owned()), "{:?}", found.remedy);
    assert!(found.remedy.iter().any(|l| l.ends_with(" -c 10000 --heartbeat 15s")), "{:?}", found.remedy);
    assert_eq!(first(run).as_deref(), Some("server.idle-timeout"));
    // What others outlived is no timeout: nginx closes those longest idle to make room for new ones.
    let mut run = testing::run();
    server::closed_at_one_age(&mut run, 97, (900.0, 910.0), (30_500.0, 90_000.0));
    run.spec.heartbeat_seconds = Some(1.0);
    run.stages.iter_mut().for_each(|s| s.idle = None);
    assert_eq!(status(run.clone(), "server.idle-timeout"), Status::Hit);
    run.stages[3].idle = Some(CpuUse { seconds: 1.0, ..CpuUse::default() });
    assert_eq!(status(run, "server.idle-timeout"), Status::Clear);
}

#[test]
fn closings_at_one_age_are_a_lifetime_and_others_are_not() {
    let mut run = testing::run();
    server::closed_at_one_age(&mut run, 97, (5_000.0, 9_900.0), (45_000.0, 45_100.0));
    let old = finding(run.clone(), "server.idle-timeout");
    assert_eq!(old.summary, "the server closes what is 45.0 s old: 97 connections were closed");
    assert!(old.remedy[0].contains("no heartbeat helps"), "{:?}", old.remedy);

    let told = |run: &RunResult| status(run.clone(), "server.idle-timeout");
    let mut others = run.clone();
    others.connections.failed.insert(FailureKind::Closed, 97);
    others.stages[0].t_seconds = -50.0;
    assert_eq!(told(&others), Status::Clear, "most were older and stood on");
    let mut spread = testing::run();
    server::closed_at_one_age(&mut spread, 97, (5_000.0, 9_900.0), (45_000.0, 60_000.0));
    assert_eq!(told(&spread), Status::Clear);
    let mut few = testing::run();
    server::closed_at_one_age(&mut few, 3, (30_000.0, 30_000.0), (30_000.0, 30_000.0));
    assert_eq!(told(&few), Status::Clear);
    let mut refused = run.clone();
    refused.connections.failed.insert(FailureKind::ServerRefused, 1);
    assert_eq!(told(&refused), Status::Clear);
    let mut dead = run;
    dead.after.target.as_mut().unwrap().processes = 0;
    assert_eq!(told(&dead), Status::Clear);
    let mut unrecorded = testing::run();
    testing::lose(&mut unrecorded, FailureKind::Closed, 97);
    assert_eq!(told(&unrecorded), Status::Unknown);
}

#[test]
fn a_stall_is_told_with_its_time_and_length() {
    let mut run = testing::run();
    server::stall(&mut run, 3);
    let found = finding(run.clone(), "server.stall");
    assert_eq!(found.status, Status::Hit);
    assert_eq!(found.summary, "nothing was answered on any connection for 3.15 s at 42.9 s");
    // Nobody was served for longer than the objective allows, even if every connection came through.
    assert_eq!(first(run.clone()).as_deref(), Some("server.stall"));

    run.spec.objective_seconds = 5.0;
    let within = finding(run.clone(), "server.stall");
    assert_eq!(within.status, Status::Clear);
    assert!(within.summary.ends_with("within the objective of 5.00 s"), "{}", within.summary);

    run.spec.objective_seconds = 1.0;
    let told = |run: &RunResult| status(run.clone(), "server.stall");
    for moment in &mut run.series {
        moment.generator_lag_ms = Some(2_000.0);
    }
    assert_eq!(told(&run), Status::Clear, "it was the generator that stalled");
    let mut few = testing::run();
    server::stall(&mut few, 3);
    few.series.iter_mut().for_each(|m| m.ready = 13);
    assert_eq!(told(&few), Status::Clear, "hardly a heartbeat was due");
    let mut dead = testing::run();
    server::stall(&mut dead, 3);
    testing::lose(&mut dead, FailureKind::Reset, 10_000);
    dead.after.target.as_mut().unwrap().processes = 0;
    assert_eq!(told(&dead), Status::Clear, "it died");
}

#[test]
fn a_stall_within_a_moment_shows_as_a_wave_and_lasting_slowness_does_not() {
    let told = |run: &RunResult| status(run.clone(), "server.stall");
    let mut run = testing::run();
    server::stall(&mut run, 0);
    run.series[3] = model::result::Moment {
        beats_answered: 110,
        beat_p50_ms: Some(500.0),
        beat_max_ms: Some(1_200.0),
        ..run.series[3].clone()
    };
    assert_eq!(told(&run), Status::Hit);
    for moment in &mut run.series {
        (moment.beat_p50_ms, moment.beat_max_ms) = (Some(500.0), Some(1_200.0));
    }
    assert_eq!(told(&run), Status::Clear);
}

#[test]
fn a_target_that_lives_and_never_answers_again_has_stalled_too() {
    let mut run = testing::run();
    server::stall(&mut run, 12);
    // It stood still from the third moment on, until all were given up.
    run.series.truncate(3 + 12);
    run.series.last_mut().unwrap().ready = 0;
    let told = |run: &RunResult| status(run.clone(), "server.stall");
    assert_eq!(told(&run), Status::Clear, "nobody was given up");
    testing::fail_last(&mut run, FailureKind::Silent, 10_000);
    let found = finding(run.clone(), "server.stall");
    assert_eq!(found.status, Status::Hit);
    assert_eq!(found.summary, "nothing was answered on any connection from 42.0 s on, for 11.0 s and more");
    assert_eq!(first(run.clone()).as_deref(), Some("server.stall"));
    run.series[12].verified = 10;
    assert_eq!(told(&run), Status::Hit, "it answered some before");
    run.series[13].verified = 10;
    assert_eq!(told(&run), Status::Clear, "it still answers some");
}

#[test]
fn collections_during_a_stall_are_evidence() {
    let mut run = testing::run();
    server::heap(&mut run, 1 << 30, |_| 4_000_000, 0.5);
    server::stall(&mut run, 3);
    let found = finding(run, "server.stall");
    assert!(
        found.evidence.contains(&"collections of its heap took 1.50 s in stage 10".to_owned()),
        "{:?}",
        found.evidence
    );
}

#[test]
fn a_full_thread_that_accepts_is_a_limit_only_when_someone_waited() {
    let mut run = testing::run();
    server::accept_slowly(&mut run, 3);
    let clear = finding(run.clone(), "server.accept-rate");
    assert_eq!(clear.status, Status::Clear);
    assert!(clear.summary.contains("full accepting 10,000 connections a second"), "{}", clear.summary);
    let told = |run: &RunResult| status(run.clone(), "server.accept-rate");
    let mut overflowed = run.clone();
    overflowed.series[1].listen_overflows = Some(5);
    assert_eq!(told(&overflowed), Status::Hit);
    let mut short = testing::run();
    server::accept_slowly(&mut short, 1);
    short.series[0].listen_overflows = Some(5);
    assert_eq!(told(&short), Status::Clear, "a queue that stood once");
    overflowed.series.iter_mut().for_each(|m| m.target_busiest_cpus = Some(0.3));
    assert_eq!(told(&overflowed), Status::Clear, "it was not busy");
}

#[test]
fn descriptors_explain_a_server_that_spins_in_accept() {
    let mut run =
        testing::broken_at(1_017, &[(500, Purpose::Ramp), (2_000, Purpose::Ramp)], FailureKind::Silent);
    testing::nofile(&mut run, 1_024);
    server::accept_slowly(&mut run, 3);
    run.series[1].listen_overflows = Some(5);
    server::work(&mut run, 1.0, 1.0);
    assert_eq!(status(run.clone(), "server.accept-rate"), Status::Clear);
    assert_ne!(status(run.clone(), "server.cpu"), Status::Hit);
    assert_eq!(first(run).as_deref(), Some("server.nofile"));
}

#[test]
fn handshakes_that_fill_the_cpu_are_a_limit_only_when_someone_waited() {
    for (phase, what) in [("tls", "the TLS handshake"), ("auth", "the login")] {
        let mut run = testing::run();
        server::handshakes(&mut run, phase, 1.9);
        let clear = finding(run.clone(), "server.handshake-cpu");
        assert_eq!(clear.status, Status::Clear);
        assert_eq!(
            clear.summary,
            format!("{what} fills the target's CPU at 1,000 a second; all were in time")
        );
        run.stages[4].ready_latency = Some(testing::latency(2_500.0));
        let hit = finding(run.clone(), "server.handshake-cpu");
        assert_eq!(hit.status, Status::Hit);
        assert!(hit.summary.starts_with(what) && hit.summary.contains("in stage 5"), "{}", hit.summary);
        server::handshakes(&mut run, phase, 0.9);
        assert_eq!(status(run.clone(), "server.handshake-cpu"), Status::Clear, "there was CPU left");
        // One thread can use one CPU: then that is full.
        server::work(&mut run, 0.9, 0.9);
        assert_eq!(status(run, "server.handshake-cpu"), Status::Hit);
    }
}

#[test]
fn handshakes_fill_a_quota_of_a_fiftieth_of_a_cpu_which_is_lifted() {
    let mut run = testing::run();
    server::handshakes(&mut run, "tls", 0.02);
    run.stages[4].ready_latency = Some(testing::latency(2_500.0));
    assert_eq!(status(run.clone(), "server.handshake-cpu"), Status::Clear, "there was CPU left");
    run.before.target.as_mut().unwrap().cgroup = Some(Cgroup {
        cpu_limit: Some(0.02),
        cpu_limit_file: Some("/sys/fs/cgroup/app/cpu.max".into()),
        ..Cgroup::default()
    });
    let found = finding(run, "server.handshake-cpu");
    assert_eq!(found.status, Status::Hit);
    assert!(found.remedy.contains(&"echo '200000 100000' > /sys/fs/cgroup/app/cpu.max".to_owned()));
}

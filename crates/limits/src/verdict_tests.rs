//! The sentence for whoever reads only one: typical runs.

use insta::assert_snapshot;
use model::result::Purpose;
use model::{FailureKind, RunResult};

use crate::testing::{self, concluded};

fn says(run: RunResult) -> String {
    let run = concluded(run);
    let verdict = &run.verdict;
    let first = verdict.first_limit.as_deref().unwrap_or("-");
    format!("held {}, trusted {}, first {first}\n{}", verdict.held, verdict.trusted, verdict.sentence)
}

#[test]
fn all_held() {
    assert_snapshot!(says(testing::sized(10_000, 10)), @r#"
    held true, trusted true, first -
    held 10,000 of 10,000 connections, every one verified; nothing broke; next would be server.nofile at about 20,000
    "#);
}

#[test]
fn lost_while_held() {
    let mut run = testing::run();
    testing::lose(&mut run, FailureKind::Closed, 100);
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    lost 100 of 10,000 held connections: 100 were closed by the server while held, first at 12.3 s; no limit of the catalogue was seen to be met
    "#);
}

#[test]
fn the_target_died() {
    let mut run = testing::run();
    testing::lose(&mut run, FailureKind::Reset, 9_958);
    run.connections.failed.insert(FailureKind::Refused, 42);
    run.connections.held = 0;
    run.after.target = None;
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    the target died at 12.3 s: 9,958 connections were reset, 42 were refused, and its processes are gone
    "#);
}

#[test]
fn held_back_by_a_quota() {
    let mut run = testing::run();
    testing::throttle(&mut run, 3..=10);
    assert_snapshot!(says(run), @r#"
    held true, trusted false, first client.cpu
    cannot be trusted: the generator was held back by its CPU quota (0.10 CPUs) in stages 3-10 (client.cpu); as far as it goes, held 10,000 of 10,000 connections, every one verified; lift it with `echo 200000 > /sys/fs/cgroup/cpu/load/cpu.cfs_quota_us`
    "#);
}

#[test]
fn early_stages_held_back_do_not_decide() {
    let mut run = testing::run();
    testing::throttle(&mut run, 1..=2);
    let run = concluded(run);
    assert!(run.verdict.trusted && run.verdict.held);
    assert!(run.warnings[0].starts_with("stage 1 cannot be trusted"), "{:?}", run.warnings);
    assert!(run.warnings[0].ends_with("left out of the figures"), "{:?}", run.warnings);
}

#[test]
fn until_it_breaks_on_descriptors() {
    let mut run = testing::broken_at(987, &testing::search_of_987(), FailureKind::Silent);
    testing::nofile(&mut run, 994);
    assert_snapshot!(says(run), @r#"
    held true, trusted true, first server.nofile
    the line is 987: at 991, 987 of 991 were verified: 4 stopped answering; server.nofile: a process of the target had 994 of 994 descriptors open; lift it with `prlimit --pid 77 --nofile=130000:130000`
    "#);
}

#[test]
fn until_it_breaks_on_a_setting() {
    let mut run = testing::broken_at(987, &testing::search_of_987(), FailureKind::ServerRefused);
    run.settings.target[0].name = "redis-server".into();
    let words = "ERR max number of clients reached";
    run.connections.failed_example.insert(FailureKind::ServerRefused, words.into());
    assert_snapshot!(says(run), @r#"
    held true, trusted true, first server.max-connections
    the line is 987: at 991, 987 of 991 were verified: 4 were turned away by the server's own words; server.max-connections: beyond 987 the server refuses: "ERR max number of clients reached"; lift it with `redis-cli CONFIG SET maxclients 120000`
    "#);
}

#[test]
fn until_it_breaks_and_it_does_not() {
    let mut run = testing::run();
    run.spec.until_it_breaks = true;
    assert_snapshot!(says(run), @r#"
    held true, trusted true, first -
    the line is at least 10,000, which is all that was asked; nothing broke; next would be server.nofile at about 20,000
    "#);
}

#[test]
fn not_even_the_first() {
    let run = testing::broken_at(0, &[(2, Purpose::Ramp), (1, Purpose::Bisect)], FailureKind::ReadyTimeout);
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    there is no line: at 1, 0 of 1 were verified: 1 opened, but their handshake was never answered; no limit of the catalogue was seen to be met
    "#);
}

#[test]
fn out_of_ports() {
    let mut run = testing::run();
    testing::fail_last(&mut run, FailureKind::NoPorts, 772);
    assert_snapshot!(says(run), @r#"
    held false, trusted false, first client.ephemeral-ports
    cannot be trusted: 772 connections found no local port left in stage 10 (client.ephemeral-ports); as far as it goes, held 9,228 of 10,000 connections; lift it with `plimsoll hold tcp://127.0.0.1:7000 -c 12000 --source 127.0.0.2-127.0.0.3`
    "#);
}

#[test]
fn elsewhere_and_reset() {
    let mut run = testing::run();
    testing::hide_target(&mut run);
    testing::fail_last(&mut run, FailureKind::Reset, 13);
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    held 9,987 of 10,000 connections: 13 were reset; the target's processes cannot be seen, so no limit could be named
    "#);
}

#[test]
fn interrupted() {
    let mut run = testing::run();
    run.interrupted = true;
    run.seconds = 12.0;
    run.stages.truncate(4);
    (run.connections.ready, run.connections.held, run.connections.verified) = (4_000, 4_000, 4_000);
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    interrupted after 12.0 s: held 4,000 of 10,000 connections
    "#);
}

#[test]
fn nothing_opened() {
    let mut run = testing::doctor(10_000);
    run.connections.requested = 10_000;
    run.connections.failed.insert(FailureKind::Refused, 1_000);
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    no stage was finished: 1,000 were refused
    "#);
}

#[test]
fn slower_than_the_objective() {
    let mut run = testing::run();
    let last = run.stages.last_mut().unwrap();
    last.passed = false;
    last.why_failed = Some("the slowest round trip took 1.70 s".into());
    assert_snapshot!(says(run), @r#"
    held false, trusted true, first -
    held 10,000 of 10,000 connections, every one verified, but not within the objective of 1.00 s: at 10,000, the slowest round trip took 1.70 s; no limit of the catalogue was seen to be met
    "#);
}

#[test]
fn beats_missed_and_a_worker_lost() {
    let mut run = testing::run();
    run.heartbeat.missed = 12;
    assert_snapshot!(says(run.clone()), @r#"
    held true, trusted true, first -
    held 10,000 of 10,000 connections, every one verified; 12 of 30,000 heartbeats were missed; nothing broke; next would be server.nofile at about 20,000
    "#);
    run.workers[0].died = Some("signal 9".into());
    testing::lose(&mut run, FailureKind::WorkerDied, 10_000);
    assert_snapshot!(says(run), @r#"
    held false, trusted false, first -
    cannot be trusted: a worker of the generator died (signal 9) in stage 10; as far as it goes, lost 10,000 of 10,000 held connections; 12 of 30,000 heartbeats were missed
    "#);
}

#[test]
fn what_to_know_before_trusting_it() {
    let mut run = testing::sized(1_000, 4);
    testing::hide_target(&mut run);
    run.spec.hold_seconds = 5.0;
    run.heartbeat.missed = 2;
    run.verify.latency = None;
    run.spec.fail_if = vec!["verify.latency.p99_ms > 1s".into(), "nonsense > 1".into(), "failed > 0".into()];
    assert_snapshot!(concluded(run).warnings.join("\n"), @r#"
    the target's side was not seen: it runs elsewhere; start plimsoll on its host
    costs have no 95% interval: 4 good stages, 5 are needed for an interval; ask for --stages 5 or more
    2 of 3,000 heartbeats were not answered within the patience, or their connection ended first
    held for 5.00 s, less than the heartbeat interval of 10.0 s: not every connection had a heartbeat; use --hold 10s or more
    --fail-if "verify.latency.p99_ms > 1s" was not judged: that figure was not measured in this run
    --fail-if was not judged: "nonsense > 1": a result has no "nonsense"; it has plimsoll, schema, experiment, started_at, seconds, command, spec, host, target, workers, settings, before, after, connections, establish, heartbeat, verify, stages, storm, talk, sweep, beside, differences, churn, series, interrupted, cost, line, limits, warnings, thresholds, verdict
    "#);
}

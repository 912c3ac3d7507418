//! Is what a result says true, judged by what was done to the target, to the generator, and by outside readings?

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{
    Ended, Going, Node, PLIMSOLL, SOON, alone, directory, hold, is_alive, now, signal, start_command,
    start_hold, trusted, wait_until,
};
use model::{FailureKind, RunResult};
use testkit::bad;
use testkit::cgroup::Cgroup;
use testkit::limited::Signal;

fn failed(result: &RunResult, kind: FailureKind) -> u64 {
    result.connections.failed.get(&kind).copied().unwrap_or(0)
}

/// What the series says of failures, from the start to the end.
fn failed_over_time(result: &RunResult) -> u64 {
    result.series.iter().flat_map(|moment| moment.failed.values()).sum()
}

/// With one heartbeat per connection and second, a stop of T seconds meets each connection's schedule evenly: for
/// every x below T, N × (T − x) heartbeats must have waited for longer than x. So of all that were sent, the share of
/// 1 − q is met at x = T − (1 − q) × sent / N, which is the quantile q; and all that was waited for together is
/// N × T² / 2. A tool that sends no heartbeat while one is under way loses half of them, and a quarter of that sum.
#[test]
fn a_target_that_stops_for_two_seconds_is_seen_as_the_schedule_demands() {
    let _alone = alone();
    const N: f64 = 2_000.0;
    let mut stopped = 0.0;
    let ended = trusted(|| {
        let node = Node::start("tcp", &[]);
        let flags = ["-c", "2000", "--stages", "1", "--hold", "6s", "--heartbeat", "1s", "--objective", "5s"];
        let mut going = start_hold(&node.url(), &flags);
        going.wait_for_stages(1);
        sleep(Duration::from_secs(1));
        let began = now();
        signal(node.running.pid(), Signal::Stop);
        sleep(Duration::from_secs(2));
        signal(node.running.pid(), Signal::Continue);
        stopped = now() - began;
        going.finish()
    });
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!((result.connections.held, result.connections.failed_total()), (2_000, 0));

    let beats = &result.heartbeat;
    assert_eq!((beats.missed, beats.answered), (0, beats.sent), "{beats:?}");
    let latency = beats.latency.expect("heartbeats were timed");
    assert_eq!(latency.count, beats.sent, "none vanished");
    // from when the ramp's only stage stood to when the last verify pass was over, each connection beat every second
    let (ramp, held) = (&result.stages[0], &result.stages[1]);
    let end = held.t_seconds + held.idle.expect("it was held").seconds + held.verify_seconds;
    let demanded = N * (end - ramp.t_seconds - ramp.seconds);
    let sent = beats.sent as f64;
    assert!((sent - demanded).abs() <= 0.06 * demanded, "{sent} were sent, {demanded} were demanded");

    let longest = latency.max_ms / 1e3;
    assert!((1.9..3.5).contains(&longest) && (longest - stopped).abs() < 0.5, "{longest} s of {stopped} s");
    for (q, seen_ms) in [(0.90, latency.p90_ms), (0.95, latency.p95_ms), (0.99, latency.p99_ms)] {
        let (seen, due) = (seen_ms / 1e3, stopped - (1.0 - q) * sent / N);
        assert!((seen - due).abs() < 0.2, "the quantile {q} is {seen} s and should be {due} s: {latency:?}");
    }
    let (waited, due) = (latency.mean_ms / 1e3 * sent, N * stopped * stopped / 2.0);
    assert!((waited - due).abs() < 0.15 * due, "{waited} s were waited in all, and should be {due} s");
}

#[test]
fn every_connection_of_a_target_that_is_killed_is_counted_and_the_verdict_says_that_it_died() {
    let mut node = Node::start("tcp", &[]);
    let mut going =
        start_hold(&node.url(), &["-c", "2000", "--stages", "2", "--hold", "8s", "--heartbeat", "1s"]);
    going.wait_for_stages(2);
    node.running.signal(Signal::Kill).unwrap();
    let ended = going.finish();
    ended.expect_code(3);
    let result = ended.result();
    let lost = failed(&result, FailureKind::Reset) + failed(&result, FailureKind::Closed);
    assert_eq!(lost, 2_000, "{:?}", result.connections.failed);
    assert_eq!((result.connections.held, result.connections.verified), (0, 0));
    let sentence = &result.verdict.sentence;
    assert!(sentence.contains("the target died"), "{sentence}");
    assert!(!result.verdict.held && result.verdict.trusted);

    // the moment: it was killed when the hold had just begun
    let moment = result.series.iter().find(|m| !m.failed.is_empty()).expect("the series shows it");
    let held_from = result.stages[1].t_seconds + result.stages[1].seconds;
    assert!(moment.doing == "hold" && (moment.t_seconds - held_from).abs() < 4.0, "{held_from}: {moment:?}");
    assert_eq!(failed_over_time(&result), 2_000);
    assert_eq!(result.series.last().map(|m| m.ready), Some(0));
}

#[test]
fn each_of_the_few_connections_that_a_server_drops_at_random_is_counted() {
    // The server is a thread of this process: what other tests start and end would count as the target's processes.
    let _alone = alone();
    let doom = bad::Kind::ClosesAtRandom { one_in: 1000, after: Duration::from_millis(4500), seed: 11 };
    let server = bad::start(doom).unwrap();
    let url = format!("tcp://{}", server.addr);
    let ended = hold(&url, &["-c", "2000", "--stages", "2", "--hold", "6s", "--heartbeat", "1s"]);
    ended.expect_code(3);
    let result = ended.result();
    assert!(server.misbehaved() > 0, "the seed dooms some of the first 2,000");
    assert_eq!(result.connections.failed_total(), server.misbehaved(), "{:?}", result.connections.failed);
    assert_eq!(
        failed(&result, FailureKind::Closed) + failed(&result, FailureKind::Reset),
        server.misbehaved()
    );
    assert_eq!(result.connections.held, 2_000 - server.misbehaved(), "the others are held");
    assert!(result.series.iter().any(|m| m.doing == "hold" && !m.failed.is_empty()), "and it says when");
    let sentence = &result.verdict.sentence;
    let words = format!("lost {} of 2,000 held connections", server.misbehaved());
    assert!(sentence.contains(&words), "{sentence}");
}

#[test]
fn each_connection_that_a_server_stops_reading_is_silent() {
    let server = bad::start(bad::Kind::StopsReading { one_in: 200, seed: 5 }).unwrap();
    let url = format!("tcp://{}", server.addr);
    let ended = hold(&url, &["-c", "1000", "--stages", "1", "--hold", "2s", "--heartbeat", "1s"]);
    ended.expect_code(3);
    let result = ended.result();
    assert!(server.misbehaved() > 0, "the seed picks some of the first 1,000");
    assert_eq!(result.connections.failed_total(), server.misbehaved(), "{:?}", result.connections.failed);
    assert_eq!(failed(&result, FailureKind::Silent), server.misbehaved());
    assert!(result.heartbeat.missed >= server.misbehaved(), "{:?}", result.heartbeat);
    assert!(result.verdict.sentence.contains("stopped answering"), "{}", result.verdict.sentence);
}

#[test]
fn a_generator_that_a_cpu_quota_starves_says_so_and_is_not_trusted() {
    let _alone = alone();
    let group = match Cgroup::with_cpu_quota(&format!("plimsoll-truth-{}", std::process::id()), 0.05) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped, as this machine allows no control group: {why}");
            return;
        }
    };
    let node = Node::start("tcp", &[]);
    let directory = directory();
    // the shell waits until it stands in the group, so that all of the generator does
    let gate = directory.path().join("gate");
    let mut command = Command::new("sh");
    command.args(["-c", "while [ ! -e \"$1\" ]; do sleep 0.01; done; shift; exec \"$@\"", "gate"]);
    command.arg(&gate).arg(PLIMSOLL).args(["hold", &node.url(), "-c", "4000", "--stages", "3"]);
    // few heartbeats: it is to be starved while it opens and verifies, and still to come to an end
    command.args(["--hold", "0s", "--heartbeat", "5s", "--quiet", "--json"]);
    command.arg(directory.path().join("result.json"));
    let going = start_command(directory, command);
    group.add(going.running.pid()).unwrap();
    std::fs::write(gate, "").unwrap();
    let ended = going.finish();
    ended.expect_code(4);
    let result = ended.result();
    assert!(group.throttled().unwrap() > 0, "the kernel held it back");
    let invalid: Vec<&str> = result.stages.iter().filter_map(|s| s.why_invalid.as_deref()).collect();
    assert!(
        !invalid.is_empty() && invalid.iter().any(|why| why.contains("CPU quota (0.05 CPUs)")),
        "{invalid:?}"
    );
    for stage in &result.stages {
        assert_eq!(stage.valid, stage.why_invalid.is_none());
    }
    assert!(!result.stages.last().unwrap().valid, "the one that decides");
    assert!(!result.verdict.trusted);
    assert_eq!(result.verdict.first_limit.as_deref(), Some("client.cpu"));
    assert!(result.verdict.sentence.contains("CPU quota"), "{}", result.verdict.sentence);
}

#[test]
fn a_worker_that_is_killed_is_reported_with_its_share_and_the_run_still_ends_with_a_result() {
    let node = Node::start("tcp", &[]);
    let flags = ["-c", "2000", "--stages", "2", "--hold", "4s", "--heartbeat", "1s", "--workers", "2"];
    let mut going = start_hold(&node.url(), &flags);
    going.wait_for_stages(2);
    let workers = going.workers();
    assert_eq!(workers.len(), 2, "{workers:?}");
    signal(workers[0], Signal::Kill);
    let ended = going.finish();
    ended.expect_code(4);
    let result = ended.result();
    assert_eq!(failed(&result, FailureKind::WorkerDied), 1_000, "{:?}", result.connections.failed);
    assert_eq!(result.connections.failed_total(), 1_000, "{:?}", result.connections.failed);
    assert_eq!(
        (result.connections.held, result.connections.verified),
        (1_000, 1_000),
        "the other's are held"
    );
    let dead = result.workers.iter().find(|w| w.pid == workers[0]).expect("it is named");
    assert_eq!(dead.share, 1_000);
    assert!(dead.died.as_ref().is_some_and(|how| how.contains("signal 9")), "{dead:?}");
    let alive = result.workers.iter().find(|w| w.pid == workers[1]).expect("and so is the other");
    assert_eq!(alive.died, None);
    assert!(!result.verdict.trusted);
    assert!(result.verdict.sentence.contains("worker"), "{}", result.verdict.sentence);
}

/// A hold with the node beside it that would take a minute, at the beginning of its hold.
fn in_mid_hold() -> Going {
    let url = format!("tcp://127.0.0.1:{}", crate::harness::port());
    let mut going = start_hold(&url, &["--serve", "-c", "1000", "--stages", "1", "--hold", "60s"]);
    going.wait_for_stages(1);
    going
}

/// All processes that a run has started, itself included.
fn tree(pid: u32) -> Vec<u32> {
    let below = crate::harness::children_of(pid);
    below.into_iter().flat_map(tree).chain([pid]).collect()
}

fn nothing_is_left_of(processes: &[u32]) {
    wait_until("every process of the run was gone", SOON, || {
        processes.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
}

#[test]
fn an_interrupted_run_ends_soon_with_a_result_of_what_was_seen() {
    let mut going = in_mid_hold();
    let processes = tree(going.running.pid());
    going.running.signal(Signal::Interrupt).unwrap();
    let ended = going.finish_within(Duration::from_secs(30));
    ended.expect_code(130);
    let result = ended.result();
    assert!(result.interrupted);
    assert_eq!(result.connections.held, 1_000, "it still held them");
    assert_eq!(result.connections.failed_total(), 0);
    assert!(result.verdict.sentence.contains("interrupted"), "{}", result.verdict.sentence);
    nothing_is_left_of(&processes);
}

#[test]
fn a_run_that_is_interrupted_twice_ends_at_once_and_leaves_nothing_behind() {
    let mut going = in_mid_hold();
    let processes = tree(going.running.pid());
    assert!(processes.len() >= 3, "itself, the node, a worker: {processes:?}");
    // stopped, the first cannot drain the connections, so that it is surely not over when the second comes
    for worker in going.workers() {
        signal(worker, Signal::Stop);
    }
    going.running.signal(Signal::Interrupt).unwrap();
    sleep(Duration::from_millis(300));
    let began = now();
    going.running.signal(Signal::Interrupt).unwrap();
    let workers = going.workers();
    let ended: Ended = going.finish_within(Duration::from_secs(5));
    ended.expect_code(130);
    assert!(now() - began < 2.0, "{} s", now() - began);
    for worker in workers {
        signal(worker, Signal::Continue);
    }
    nothing_is_left_of(&processes);
}

#[test]
fn a_run_that_is_killed_leaves_nothing_behind() {
    let mut going = in_mid_hold();
    let processes = tree(going.running.pid());
    going.running.signal(Signal::Kill).unwrap();
    nothing_is_left_of(&processes[..]);
}

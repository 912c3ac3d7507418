//! Can they all speak, and is it told who could not, and from when?

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{
    Ended, Going, Node, PLIMSOLL, SOON, alone, directory, established_to, hold, port, run, signal,
    start_command, trusted, wait_until,
};
use model::FailureKind;
use model::result::RunResult;
use model::talk::TalkResult;
use testkit::limited::Signal;

/// Starts a talk that writes `result.json`.
fn start_talk(url: &str, flags: &[&str]) -> Going {
    let directory = directory();
    let mut command = Command::new(PLIMSOLL);
    command.args(["talk", url]).args(flags).arg("--json").arg(directory.path().join("result.json"));
    start_command(directory, command)
}

/// Runs a talk to its end.
fn talk(url: &str, flags: &[&str]) -> Ended {
    start_talk(url, flags).finish()
}

fn talked(result: &RunResult) -> &TalkResult {
    result.talk.as_ref().expect("what came of the talk")
}

/// Waits until connections speak.
fn wait_until_they_speak(port: u16, connections: u64) {
    wait_until("all are connected", SOON, || (established_to(port) >= connections).then_some(()));
    // the last stage settles for a second, and the quiet before the talk takes three
    sleep(Duration::from_millis(6_000));
}

#[test]
fn every_client_gets_every_answer_and_the_schedule_is_kept() {
    let _alone = alone();
    for (start, arrivals) in [("spread", "constant"), ("together", "poisson")] {
        let flags = ["--messages", "10", "--rate", "5/s", "--start", start, "--arrivals", arrivals];
        let ended = trusted(|| {
            let node = Node::start("tcp", &[]);
            talk(&node.url(), &[&["-c", "500", "--stages", "2"], &flags[..]].concat())
        });
        ended.expect_code(0);
        let result = ended.result();
        let seen = talked(&result);
        assert_eq!((seen.clients, seen.succeeded), (500, 500));
        assert_eq!((seen.messages, seen.sent, seen.answered), (5_000, 5_000, 5_000));
        let counted = [seen.latency, seen.schedule_lag].map(|l| l.map(|l| l.count));
        assert_eq!(counted, [Some(5_000), Some(5_000)]);
        assert_eq!(result.series.iter().map(|m| m.messages_answered).sum::<u64>(), 5_000);

        // ten messages, a fifth of a second apart
        let ideal = seen.ideal_seconds;
        match (start, arrivals) {
            ("together", _) => assert!((2.0..9.0).contains(&ideal), "the longest of 500 users: {ideal}"),
            _ => assert!((1.99..2.0).contains(&ideal), "{ideal}"),
        }
        let took = seen.seconds.expect("there were answers");
        assert!(took >= ideal && took < ideal + 1.0, "{took} s against {ideal} s");
        let names: Vec<&str> = seen.spells.iter().map(|spell| spell.name.as_str()).collect();
        assert_eq!(names, ["before", "during", "after"]);
        let during = &seen.spells[1];
        assert!(during.target_cpus > Some(0.0) && during.target_user_bytes > Some(0), "{during:?}");
        assert!(during.target_threads >= Some(1), "{during:?}");
        assert_eq!(result.verdict.first_limit, None, "{}", result.verdict.sentence);
        ended.expect_words(&["500 of 500 clients got all 10 answers", "nothing broke"]);
    }
}

#[test]
fn a_stall_in_mid_talk_is_charged_to_every_message_that_was_due() {
    let _alone = alone();
    let ended = trusted(|| {
        let node = Node::start("tcp", &["--processes", "1"]);
        let flags =
            ["-c", "100", "--stages", "1", "--messages", "60", "--rate", "10/s", "--heartbeat", "off"];
        let going = start_talk(&node.url(), &flags);
        wait_until_they_speak(node.port, 100);
        let processes = node.processes();
        processes.iter().for_each(|pid| signal(*pid, Signal::Stop));
        sleep(Duration::from_secs(1));
        processes.iter().for_each(|pid| signal(*pid, Signal::Continue));
        going.finish()
    });
    let result = ended.result();
    let seen = talked(&result);
    assert_eq!((seen.succeeded, seen.answered), (100, 6_000), "none is lost: {}", result.verdict.sentence);
    // A second of six: a sixth of all messages were due in it, and wait from nothing to all of it.
    let latency = seen.latency.expect("latencies");
    assert!((800.0..1_400.0).contains(&latency.max_ms), "{latency:?}");
    assert!(latency.p90_ms > 200.0 && latency.p50_ms < 100.0, "{latency:?}");
    let waited = latency.mean_ms / 1e3 * 6_000.0;
    assert!((350.0..700.0).contains(&waited), "100 clients, 10 messages, half a second each: {waited} s");
    assert!(seen.schedule_lag.is_some_and(|lag| lag.p99_ms < 100.0), "it was not the generator");
}

#[test]
fn a_server_that_dies_or_falls_silent_in_mid_talk_is_told_in_time_with_what_was_said() {
    for (what, kind) in [(Signal::Kill, FailureKind::Reset), (Signal::Stop, FailureKind::Silent)] {
        let node = Node::start("tcp", &["--processes", "1"]);
        let flags =
            ["-c", "200", "--stages", "1", "--messages", "40", "--rate", "2/s", "--objective", "500ms"];
        let going = start_talk(&node.url(), &flags);
        wait_until_they_speak(node.port, 200);
        node.processes().into_iter().for_each(|pid| signal(pid, what));
        let ended = going.finish_within(Duration::from_secs(60));
        node.processes().into_iter().for_each(|pid| signal(pid, Signal::Continue));
        ended.expect_code(3);
        let result = ended.result();
        let seen = talked(&result);
        assert_eq!((seen.clients, seen.succeeded), (200, 0));
        assert!((200..8_000).contains(&seen.answered), "some were answered: {seen:?}");
        assert!(seen.sent >= seen.answered && seen.sent < seen.messages, "{seen:?}");
        let failed = |kind| result.connections.failed.get(&kind).copied().unwrap_or(0);
        assert_eq!(failed(kind) + failed(FailureKind::Closed), 200, "{:?}", result.connections.failed);
    }
}

#[test]
fn a_talk_that_is_interrupted_still_says_what_was_said() {
    let url = format!("tcp://127.0.0.1:{}", port());
    let flags = ["--serve", "-c", "200", "--stages", "1", "--messages", "1000", "--rate", "5/s"];
    let mut going = start_talk(&url, &flags);
    let port = url.rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    wait_until_they_speak(port, 200);
    going.running.signal(Signal::Interrupt).expect("it runs");
    let ended = going.finish();
    ended.expect_code(130);
    let result = ended.result();
    let seen = talked(&result);
    assert!(result.interrupted && seen.answered > 200, "{seen:?}");
}

#[test]
fn an_operation_verifies_a_hold_and_is_refused_where_there_is_none() {
    let node = Node::start("tcp", &[]);
    let flags = ["-c", "200", "--stages", "2", "--hold", "2s", "--heartbeat", "500ms"];
    let ended = hold(&node.url(), &[&flags[..], &["--verify-with", "hello, node"]].concat());
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!(result.spec.operation.and_then(|o| o.text).as_deref(), Some("hello, node"));
    assert_eq!(result.verify.latency.map(|l| l.count), Some(200));
    assert_eq!(result.heartbeat.missed, 0);

    for words in [
        &["hold", "sse://127.0.0.1:1/events", "-c", "1", "--verify-with", "x"][..],
        &["talk", "sse://127.0.0.1:1/events", "-c", "1"],
    ] {
        let refused = run(words);
        refused.expect_code(2);
        refused.expect_words(&["sse", "operation"]);
    }
    let ended = run(&["talk", "tcp://127.0.0.1:1", "-c", "1", "--rate", "3/fortnight"]);
    ended.expect_code(2);
    ended.expect_words(&["fortnight", "30/min"]);
}

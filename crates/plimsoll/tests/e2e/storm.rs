//! What if they all come at once? Is a full accept queue named, and only that?

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{
    Ended, Going, Node, PLIMSOLL, SOON, alone, directory, established_to, port, run, signal, start_command,
    trusted, wait_until,
};
use model::result::Status;
use model::{RoundKind, RunResult, units};
use testkit::limited::Signal;

/// Connections that come at one instant.
const BURST: u64 = 5_000;

/// Starts a storm that writes `result.json`.
fn start_storm(url: &str, flags: &[&str]) -> Going {
    let directory = directory();
    let mut command = Command::new(PLIMSOLL);
    command.args(["storm", url]).args(flags).arg("--json").arg(directory.path().join("result.json"));
    start_command(directory, command)
}

/// Runs a storm to its end.
fn storm(url: &str, flags: &[&str]) -> Ended {
    start_storm(url, flags).finish()
}

/// `ListenOverflows` of this network namespace, read without Plimsoll.
fn overflows() -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").expect("the counters");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == "ListenOverflows").expect("the counter");
    values.split(' ').nth(at).and_then(|n| n.parse().ok()).expect("a number")
}

/// Every round is there, and every connection of it came, was proven and was held.
fn all_came(result: &RunResult, connections: u64) {
    let rounds = &result.storm.as_ref().expect("the rounds of a storm").rounds;
    let kinds: Vec<RoundKind> = rounds.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, RoundKind::ALL);
    for round in rounds {
        assert_eq!((round.connections, round.ready, round.held), (connections, connections, connections));
        assert_eq!(round.failed_total(), 0, "{:?}", round.failed);
        let reached = [
            round.first_ready_seconds,
            round.half_ready_seconds,
            round.most_ready_seconds,
            round.all_ready_seconds,
        ];
        let reached = reached.map(|seconds| seconds.expect("all were ready in the end"));
        assert!(reached[0] > 0.0 && reached.is_sorted(), "{reached:?}");
        assert!(round.issued_seconds.is_some_and(|s| s <= reached[3]), "{round:?}");
        assert_eq!(round.ready_latency.map(|l| l.count), Some(connections));
        assert_eq!(round.verified_latency.map(|l| l.count), Some(connections), "a round trip of each");
        assert!(round.moments.len() >= 2 && round.moments.is_sorted_by_key(|m| m.ready));
        assert_eq!(round.moments.last().map(|m| (m.ready, m.verified)), Some((connections, connections)));
    }
    let seen = &result.connections;
    assert_eq!((seen.ready, seen.held, seen.verified), (connections, connections, connections));
}

#[test]
fn a_backlog_of_128_is_named_with_its_overflows_and_what_lifts_it() {
    let _alone = alone();
    let ended = trusted(|| {
        let node = Node::start("tcp", &["--backlog", "128"]);
        let before = overflows();
        let processes = node.processes();
        let going = start_storm(&node.url(), &["-c", "5000", "--hold", "1s"]);
        wait_until("the first of the first round are there", SOON, || {
            (established_to(node.port) >= 100).then_some(())
        });
        // However fast the machine is: for a while nobody accepts.
        processes.iter().for_each(|pid| signal(*pid, Signal::Stop));
        sleep(Duration::from_millis(300));
        processes.iter().for_each(|pid| signal(*pid, Signal::Continue));
        let ended = going.finish();
        assert!(overflows() > before, "the kernel itself counted no overflow");
        ended
    });
    ended.expect_code(0);
    let result = ended.result();
    all_came(&result, BURST);
    assert_eq!(result.verdict.first_limit.as_deref(), Some("listen.accept-queue"), "{}", ended.said());
    let first = &result.storm.as_ref().unwrap().rounds[0];
    let overflows = first.listen_overflows.expect("the counter can be read");
    assert!(overflows > 0 && first.late > 0 && first.syn_retransmits >= Some(first.late), "{first:?}");
    assert!(first.queue_most >= Some(128) && first.backlog == Some(128), "{first:?}");
    let found = result.limits.iter().find(|f| f.id == "listen.accept-queue").unwrap();
    assert_eq!(found.status, Status::Hit);
    let told = format!("first: ListenOverflows rose by {}", units::count(overflows));
    assert!(found.evidence.iter().any(|line| line.starts_with(&told)), "{:?}", found.evidence);
    assert!(found.remedy.iter().any(|line| line.contains("--backlog 6000")), "{:?}", found.remedy);
    ended.expect_words(&[
        "5,000 connections at one instant: half ready after",
        "STORM",
        "return with jitter",
    ]);
}

#[test]
fn a_long_queue_names_nothing() {
    let _alone = alone();
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").expect("somaxconn");
    // No more than one queue holds, whatever this machine allows.
    let connections = BURST.min(most.trim().parse().expect("a number"));
    let ended = trusted(|| {
        let node = Node::start("tcp", &["--backlog", "65535"]);
        storm(&node.url(), &["-c", &connections.to_string(), "--hold", "500ms"])
    });
    ended.expect_code(0);
    let result = ended.result();
    all_came(&result, connections);
    assert_eq!(result.verdict.first_limit, None, "{}", ended.said());
    assert!(result.verdict.sentence.contains("nothing broke"), "{}", result.verdict.sentence);
    for round in &result.storm.as_ref().unwrap().rounds {
        assert_eq!(round.listen_overflows, Some(0), "{round:?}");
    }
}

#[test]
fn bursts_and_a_spread_come_when_they_are_due() {
    let _alone = alone();
    let over = |flags: &[&str]| {
        let url = format!("ws://127.0.0.1:{}", port());
        let flags = [&["--serve", "-c", "600", "--hold", "0s", "--away", "100ms", "--quiet"], flags].concat();
        let ended = trusted(|| storm(&url, &flags));
        ended.expect_code(0);
        let result = ended.result();
        all_came(&result, 600);
        let rounds = result.storm.unwrap().rounds;
        (rounds[0].clone(), rounds[1].clone())
    };
    let (first, back) = over(&["--bursts", "3", "--every", "1s"]);
    let (half, all) = (first.half_ready_seconds.unwrap(), first.all_ready_seconds.unwrap());
    assert!((1.0..2.0).contains(&half) && (2.0..3.0).contains(&all), "{half} {all}");
    assert!(first.ready_latency.unwrap().max_ms < 1_000.0, "by intended time: {first:?}");
    assert!(back.all_ready_seconds.unwrap() < 1.0, "they come back at one instant: {back:?}");

    let (first, _) = over(&["--spread", "2s"]);
    let half = first.half_ready_seconds.unwrap();
    assert!((0.9..1.6).contains(&half), "{half}");
}

#[test]
fn those_that_are_turned_away_are_told() {
    let node = Node::start("http", &["--max-connections", "300"]);
    let url = node.url();
    let ended = storm(
        &url,
        &["-c", "400", "--hold", "0s", "--away", "100ms", "--patience", "2s", "--attempt", "500ms"],
    );
    ended.expect_code(3);
    let result = ended.result();
    let rounds = &result.storm.as_ref().unwrap().rounds;
    let first = &rounds[0];
    assert!(first.ready <= 300 && first.ready + first.failed_total() == 400, "{first:?}");
    assert_eq!((first.attempts, first.all_ready_seconds), (400, None));
    let jitter = &rounds[2];
    assert!(jitter.attempts > 500, "what is turned away comes again: {jitter:?}");
    assert!(jitter.ready + jitter.failed_total() == 400, "{jitter:?}");
    assert_eq!(result.verdict.first_limit.as_deref(), Some("server.max-connections"), "{}", ended.said());
}

#[test]
fn what_cannot_be_is_refused_at_once() {
    let url = format!("tcp://127.0.0.1:{}", port());
    run(&["storm", &url, "-c", "0"]).expect_code(2);
    run(&["storm", &url, "-c", "10", "--bursts", "2", "--spread", "1s"]).expect_code(2);
    let nobody = run(&["storm", &url, "-c", "10"]);
    nobody.expect_code(1);
    nobody.expect_words(&["the first connection was refused: nothing listens there"]);
}

#[test]
fn interrupted_in_a_round_it_still_reports() {
    let url = format!("tcp://127.0.0.1:{}", port());
    let mut going = start_storm(&url, &["--serve", "-c", "200", "--hold", "60s"]);
    wait_until("they are held", SOON, || going.stderr().contains("200 of 200 ready").then_some(()));
    going.running.signal(Signal::Interrupt).expect("it can be interrupted");
    let ended = going.finish();
    ended.expect_code(130);
    let rounds = ended.result().storm.expect("the rounds of a storm").rounds;
    assert_eq!(rounds.iter().map(|r| (r.kind, r.held)).collect::<Vec<_>>(), [(RoundKind::First, 200)]);
}

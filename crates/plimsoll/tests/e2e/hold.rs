//! Does a hold hold, for every protocol, and is everything that it says of it there?

use crate::harness::{directory, port, run, start_hold, trusted};
use model::RunResult;
use model::result::Status;

/// Holds 1,000 connections on the node beside the run, and looks at all that came of it.
fn holds(scheme: &str) {
    let ended = trusted(|| {
        let url = format!("{scheme}://127.0.0.1:{}", port());
        let flags =
            ["--serve", "-c", "1000", "--stages", "5", "--heartbeat", "1s", "--hold", "3s", "--quiet"];
        start_hold(&url, &flags).finish()
    });
    ended.expect_code(0);
    let result = ended.result();
    every_connection_was_held_and_verified(&result);
    heartbeats_were_answered(&result);
    both_sides_were_seen(&result);
    let sentence = &result.verdict.sentence;
    assert!(sentence.starts_with("held 1,000 of 1,000 connections, every one verified"), "{sentence}");
    assert_eq!(ended.stdout, format!("{sentence}\n"), "quiet: only the verdict");
    assert_eq!(ended.stderr, "", "quiet: no progress");
    redraws(&ended.file().display().to_string(), &result);
}

fn every_connection_was_held_and_verified(result: &RunResult) {
    let seen = &result.connections;
    assert_eq!((seen.opened, seen.ready, seen.held, seen.verified), (1000, 1000, 1000, 1000));
    assert_eq!(seen.failed_total(), 0, "{:?}", seen.failed);
    assert_eq!((result.line.connections, result.line.broke), (1000, false));
    assert!(result.verdict.held && result.verdict.trusted);
    let sizes: Vec<u64> = result.stages.iter().map(|s| s.connections).collect();
    assert_eq!(sizes, [200, 400, 600, 800, 1000, 1000], "five stages and the hold");
    for stage in &result.stages {
        assert!(stage.passed && stage.valid, "{stage:?}");
        assert_eq!((stage.ready, stage.verified), (stage.connections, stage.connections));
        assert_eq!(
            stage.latency.map(|l| l.count),
            Some(stage.connections),
            "a round trip of each connection"
        );
    }
    assert_eq!(result.establish.phases["ready"].count, 1000);
    let tls = result.spec.target.scheme.is_tls();
    assert_eq!(result.establish.phases.get("tls").map(|l| l.count), tls.then_some(1000));
}

fn heartbeats_were_answered(result: &RunResult) {
    let beats = &result.heartbeat;
    // the 1,000 were held for 3 s, at one heartbeat each second
    assert!(beats.answered >= 2_900, "{beats:?}");
    assert_eq!((beats.missed, beats.answered), (0, beats.sent), "{beats:?}");
    assert_eq!(beats.latency.map(|l| l.count), Some(beats.answered), "each of them was timed");
}

fn both_sides_were_seen(result: &RunResult) {
    let processes = &result.target.processes;
    assert!(processes.iter().all(|p| p.name == "plimsoll"), "{processes:?}");
    let listening = processes.iter().filter(|p| p.role == "listens").count();
    assert!(
        listening >= 1 && processes.iter().all(|p| ["listens", "parent", "child"].contains(&p.role.as_str()))
    );
    for (side, cost) in [("target", &result.cost.target), ("generator", &result.cost.generator)] {
        let memory = cost.user_bytes_per_connection.unwrap_or_else(|| panic!("the memory of the {side}"));
        assert!(memory.stages >= 5, "{side}: {memory:?}");
        assert!(
            memory
                .low
                .zip(memory.high)
                .is_some_and(|(low, high)| low <= memory.value && memory.value <= high)
        );
        let descriptors = cost.descriptors_per_connection.unwrap_or_else(|| panic!("those of the {side}"));
        assert!((descriptors.value - 1.0).abs() < 0.01, "{side}: {descriptors:?}");
        assert!(cost.cpu_seconds_per_second.idle_stage.is_some(), "{side}");
    }
    // the kernel is everybody's on this machine: what it says is seldom good for so few connections
    assert!(result.cost.shared_kernel_bytes_per_connection.is_some(), "both ends share one kernel");
    for finding in &result.limits {
        assert_ne!(finding.status, Status::Hit, "{finding:?}");
    }
    assert!(result.series.iter().any(|m| m.doing == "hold" && m.ready == 1000), "{:?}", result.series);
}

/// Draws the stored result again: the page and the Markdown say what the run said.
fn redraws(file: &str, result: &RunResult) {
    let directory = directory();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (html, markdown, json) = (path("report.html"), path("report.md"), path("again.json"));
    let words = ["report", file, "--html", &html, "--markdown", &markdown, "--json", &json];
    let ended = run(&words);
    ended.expect_code(0);
    let read = |path: &str| std::fs::read_to_string(path).expect("it was written");
    let again = report::read(read(&json).as_bytes()).expect("it is a result");
    // judging a stored run by the same rules changes nothing
    assert_eq!(again.verdict, result.verdict);
    assert_eq!(again.line, result.line);
    assert_eq!(again.limits, result.limits);
    assert_eq!(again.warnings, result.warnings);
    let (page, text) = (read(&html), read(&markdown));
    assert!(text.contains(&result.verdict.sentence), "{text}");
    assert!(page.starts_with("<!") && page.trim_end().ends_with("</html>"));
    assert!(page.contains(&result.verdict.sentence), "the page shows the verdict");
    for outside in ["src=\"http", "href=\"http", "url(http", "@import", "href=\"/"] {
        assert!(!page.contains(outside), "the page loads something: {outside}");
    }
}

#[test]
fn a_thousand_tcp_connections_are_held_and_verified() {
    holds("tcp");
}

#[test]
fn a_thousand_tls_connections_are_held_and_verified() {
    holds("tls");
}

#[test]
fn a_thousand_http_connections_are_held_and_verified() {
    holds("http");
}

#[test]
fn a_thousand_https_connections_are_held_and_verified() {
    holds("https");
}

#[test]
fn a_thousand_ws_connections_are_held_and_verified() {
    holds("ws");
}

#[test]
fn a_thousand_wss_connections_are_held_and_verified() {
    holds("wss");
}

#[test]
fn a_thousand_sse_connections_are_held_and_verified() {
    holds("sse");
}

#[test]
fn a_thousand_sses_connections_are_held_and_verified() {
    holds("sses");
}

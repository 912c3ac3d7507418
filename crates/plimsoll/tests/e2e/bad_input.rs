//! Does whatever is wrong end soon, with words that say what and what to do, and with the right exit code?

use std::fs;
use std::time::Duration;

use crate::harness::{Ended, Node, directory, hold, port, run, start, start_in};
use model::FailureKind;
use testkit::bad;

/// What is wrong must be told within this, and what goes wrong on the way within this too.
const BOUND_SECONDS: f64 = 30.0;

/// Asserts the exit code, that it took no longer than allowed, and that each of these words was said.
fn expect(ended: &Ended, code: i32, words: &[&str]) {
    ended.expect_code(code);
    assert!(ended.seconds < BOUND_SECONDS, "{}", ended.said());
    ended.expect_words(words);
}

/// Asserts that it was refused before anything was begun: at once, and without a result.
fn expect_refused(ended: &Ended, code: i32, words: &[&str]) {
    expect(ended, code, words);
    assert!(ended.seconds < 5.0, "{}", ended.said());
    let left = fs::read(ended.file()).unwrap_or_default();
    assert!(left.is_empty(), "a result was written although nothing was measured");
}

/// A short hold at a bad server; asserts that all failed in the one way.
fn meets(server: &bad::Server, scheme: &str, kinds: &[FailureKind]) -> Ended {
    let url = format!("{scheme}://{}", server.addr);
    let ended = hold(&url, &["-c", "100", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"]);
    expect(&ended, 3, &[]);
    let result = ended.result();
    let failed = &result.connections.failed;
    assert!(failed.values().sum::<u64>() > 0 && failed.keys().all(|kind| kinds.contains(kind)), "{failed:?}");
    assert!(!result.verdict.held);
    let kind = failed.keys().next().expect("some failed");
    ended.expect_words(&[kind.says()]);
    ended
}

#[test]
fn an_unknown_scheme_is_wrong_usage_and_the_known_ones_are_listed() {
    let ended = hold("gopher://127.0.0.1:70", &["-c", "10"]);
    expect_refused(&ended, 2, &["gopher", "tcp, tls, http, https, ws, wss, sse, sses"]);
}

#[test]
fn a_url_without_a_scheme_is_wrong_usage() {
    expect_refused(&hold("127.0.0.1:7000", &["-c", "10"]), 2, &["has no scheme", "tcp://HOST:PORT"]);
}

#[test]
fn tcp_without_a_port_is_wrong_usage() {
    expect_refused(&hold("tcp://127.0.0.1", &["-c", "10"]), 2, &["names no port", "tcp://HOST:PORT"]);
}

#[test]
fn a_port_out_of_range_is_wrong_usage() {
    expect_refused(&hold("tcp://127.0.0.1:70000", &["-c", "10"]), 2, &["70000", "1 to 65535"]);
}

#[test]
fn a_host_that_does_not_resolve_cannot_be_run_against() {
    let ended = hold("tcp://no-such-host.invalid:7000", &["-c", "10"]);
    expect(&ended, 1, &["no-such-host.invalid", "check the name"]);
}

#[test]
fn a_closed_port_is_told_as_refused_and_nothing_listens() {
    let url = format!("tcp://127.0.0.1:{}", port());
    let ended = hold(&url, &["-c", "10"]);
    expect_refused(&ended, 1, &[&url, "refused", "nothing listens there", "start the target"]);
}

#[test]
fn a_server_that_accepts_and_says_nothing_does_not_hold_what_is_asked() {
    use FailureKind::{ReadyTimeout, Silent};
    let server = bad::start(bad::Kind::Silent).unwrap();
    meets(&server, "tcp", &[Silent]);
    meets(&server, "ws", &[ReadyTimeout]);
}

#[test]
fn a_tls_port_where_nobody_shakes_hands_does_not_hold_what_is_asked() {
    let server = bad::start(bad::Kind::Silent).unwrap();
    meets(&server, "tls", &[FailureKind::ReadyTimeout]);
}

#[test]
fn a_server_that_answers_garbage_breaks_the_protocol() {
    let server = bad::start(bad::Kind::Garbage).unwrap();
    for scheme in ["tcp", "http", "ws", "sse"] {
        meets(&server, scheme, &[FailureKind::Protocol]);
    }
    meets(&server, "tls", &[FailureKind::Tls]);
}

#[test]
fn a_server_that_closes_at_once_does_not_hold_what_is_asked() {
    use FailureKind::{Closed, ClosedEarly, Reset};
    let server = bad::start(bad::Kind::ClosesAtOnce).unwrap();
    for scheme in ["tcp", "tls", "ws"] {
        meets(&server, scheme, &[Closed, ClosedEarly, Reset]);
    }
}

#[test]
fn a_server_that_closes_half_way_through_its_answer_does_not_hold_what_is_asked() {
    use FailureKind::{Closed, ClosedEarly, Protocol, Reset};
    let server = bad::start(bad::Kind::ClosesHalfWay).unwrap();
    for scheme in ["ws", "sse", "http"] {
        meets(&server, scheme, &[Closed, ClosedEarly, Protocol, Reset]);
    }
}

#[test]
fn a_server_that_closes_at_random_does_not_hold_what_is_asked() {
    use FailureKind::{Closed, Reset};
    let doom = bad::Kind::ClosesAtRandom { one_in: 3, after: Duration::from_millis(200), seed: 1 };
    let server = bad::start(doom).unwrap();
    let ended = meets(&server, "tcp", &[Closed, Reset]);
    assert_eq!(ended.result().connections.failed_total(), server.misbehaved());
}

#[test]
fn a_certificate_that_is_not_trusted_is_named_with_what_would_make_it_so() {
    let node = Node::start("tls", &[]);
    let ended = hold(&node.url(), &["-c", "100", "--stages", "2", "--hold", "1s"]);
    expect(&ended, 3, &["certificate"]);
    let result = ended.result();
    let kinds: Vec<_> = result.connections.failed.keys().copied().collect();
    assert_eq!(kinds, [FailureKind::TlsCertificate], "{:?}", result.connections);
    let told = format!("{:?}{}", result.connections.failed_example, ended.said());
    assert!(told.contains("--ca") && told.contains("--insecure"), "{told}");
    // and those do make it so
    for trust in [vec!["--ca", node.certificate().to_str().unwrap()], vec!["--insecure"]] {
        let flags = [trust.as_slice(), &["-c", "100", "--stages", "1", "--hold", "0s"]].concat();
        let ended = hold(&node.url(), &flags);
        assert!([0, 4].contains(&ended.code), "{}", ended.said());
        assert_eq!(ended.result().connections.verified, 100);
    }
}

#[test]
fn a_certificate_that_has_expired_is_named_as_such() {
    let files = directory();
    let (chain, key) = testkit::certificate::expired().unwrap();
    let file = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (chain, key) = (file("chain.pem", chain), file("key.pem", key));
    let node = Node::start("tls", &["--cert", &chain, "--key", &key]);
    // it is trusted, and for this very name
    let ended = hold(&node.url(), &["-c", "10", "--stages", "1", "--hold", "0s", "--ca", &chain]);
    expect(&ended, 3, &["certificate"]);
    let result = ended.result();
    let kinds: Vec<_> = result.connections.failed.keys().copied().collect();
    assert_eq!(kinds, [FailureKind::TlsCertificate], "{:?}", result.connections);
    let told = &result.connections.failed_example[&FailureKind::TlsCertificate];
    for words in ["expired", "renewed", "--insecure"] {
        assert!(told.contains(words), "{words:?} is missing: {told}");
    }
    let ended = hold(&node.url(), &["-c", "10", "--stages", "1", "--hold", "0s", "--insecure"]);
    assert_eq!(ended.result().connections.verified, 10, "{}", ended.said());
}

#[test]
fn a_certificate_for_another_name_is_named_as_such() {
    // its certificate is for 127.0.0.1, and it listens at every address of this machine
    let node = Node::start_at("0.0.0.0", "tls", &[]);
    let url = node.url().replace("127.0.0.1", "127.0.0.2");
    let ca = node.certificate().display().to_string();
    let ended = hold(&url, &["-c", "100", "--stages", "1", "--hold", "0s", "--ca", &ca]);
    expect(&ended, 3, &["certificate"]);
    let result = ended.result();
    let kinds: Vec<_> = result.connections.failed.keys().copied().collect();
    assert_eq!(kinds, [FailureKind::TlsCertificate], "{:?}", result.connections);
    let told = format!("{:?}{}", result.connections.failed_example, ended.said());
    assert!(told.contains("127.0.0.2") || told.contains("name"), "which name it is not valid for: {told}");
}

#[test]
fn a_plain_server_at_a_tls_url_fails_in_the_handshake() {
    let node = Node::start("http", &[]);
    let url = node.url().replace("http://", "https://");
    let ended = hold(&url, &["-c", "100", "--stages", "1", "--hold", "0s", "--insecure"]);
    expect(&ended, 3, &["TLS"]);
    assert!(ended.result().connections.failed.contains_key(&FailureKind::Tls));
}

#[test]
fn a_web_path_that_is_not_there_is_told_in_the_servers_words() {
    let node = Node::start("http", &[]);
    let url = node.url().replace("http://", "ws://") + "/nowhere";
    let ended = hold(&url, &["-c", "100", "--stages", "1", "--hold", "0s"]);
    expect(&ended, 3, &[]);
    let result = ended.result();
    assert!(format!("{:?}", result.connections.failed_example).contains("404"), "{:?}", result.connections);
}

#[test]
fn an_output_that_cannot_be_written_is_found_before_the_first_connection() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let url = format!("tcp://{}", server.addr);
    for flag in ["--json", "--html", "--markdown"] {
        let path = "/nonexistent/directory/result";
        let ended = run(&["hold", &url, "-c", "10", "--hold", "0s", flag, path]);
        expect_refused(&ended, 1, &[flag, path, "No such file or directory"]);
    }
    let directory = directory();
    let ended = run(&["hold", &url, "-c", "10", "--json", directory.path().to_str().unwrap()]);
    expect_refused(&ended, 1, &["--json", "directory"]);
    let ended = run(&["hold", &url, "-c", "10", "--html", "-"]);
    expect_refused(&ended, 2, &["--html", "--json"]);
    assert_eq!(server.accepted(), 0, "no connection was opened");
}

#[test]
fn no_connections_at_all_is_wrong_usage() {
    expect_refused(&hold("tcp://127.0.0.1:7000", &["-c", "0"]), 2, &["-c 0", "at least one"]);
    expect_refused(&run(&["doctor", "-c", "0"]), 2, &["-c 0"]);
    expect_refused(&hold("tcp://127.0.0.1:7000", &[]), 2, &["--connections"]);
    expect_refused(&hold("tcp://127.0.0.1:7000", &["-c", "many"]), 2, &["many", "--connections"]);
    expect_refused(&hold("tcp://127.0.0.1:7000", &["-c", "-5"]), 2, &["-5"]);
}

#[test]
fn ten_million_do_not_fit_and_it_says_what_does_not_and_how_it_would() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let ended = hold(&format!("tcp://{}", server.addr), &["-c", "10M"]);
    expect_refused(&ended, 1, &["10,000,000", "memory"]);
    assert_eq!(server.accepted(), 0, "it was found before the first connection");
}

#[test]
fn a_hundred_thousand_from_one_source_address_need_more_addresses() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let ended = hold(&format!("tcp://{}", server.addr), &["-c", "100k", "--source", "127.0.0.1"]);
    expect_refused(&ended, 1, &["--source", "port"]);
    assert_eq!(server.accepted(), 0, "it was found before the first connection");
}

#[test]
fn a_threshold_that_asks_for_no_figure_is_wrong_usage() {
    let url = "tcp://127.0.0.1:7000";
    for (expression, words) in [
        ("verify.latency.p98_ms > 5", vec!["p98_ms", "p99_ms"]),
        ("failed", vec!["failed", ">"]),
        ("failed > many", vec!["many", "not a number"]),
        ("> 5", vec!["names no figure"]),
        ("verify > 5", vec!["verify", "not a number"]),
    ] {
        let ended = hold(url, &["-c", "10", "--fail-if", expression]);
        expect_refused(&ended, 2, &words);
    }
}

#[test]
fn a_threshold_that_holds_ends_with_ninety_nine_and_is_shown() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let url = format!("tcp://{}", server.addr);
    let flags = ["-c", "100", "--stages", "1", "--hold", "0s", "--fail-if"];
    let ended = hold(&url, &[&flags[..], &["connections.held < 101", "--fail-if", "failed > 0"]].concat());
    expect(&ended, 99, &[]);
    let thresholds = ended.result().thresholds;
    let held: Vec<_> = thresholds.iter().map(|t| (t.expression.as_str(), t.value, t.held)).collect();
    assert_eq!(held, [("connections.held < 101", Some(100.0), true), ("failed > 0", Some(0.0), false)]);
    let ended = hold(&url, &[&flags[..], &["failed > 0"]].concat());
    expect(&ended, 0, &[]);
}

#[test]
fn a_public_address_is_refused_and_the_way_to_allow_it_is_named() {
    let ended = hold("http://192.0.2.1/", &["-c", "10"]);
    assert!([1, 2].contains(&ended.code), "{}", ended.said());
    expect_refused(&ended, ended.code, &["192.0.2.1", "public", "--allow-public 192.0.2.1"]);
    // naming another one allows nothing
    let ended = hold("http://192.0.2.1/", &["-c", "10", "--allow-public", "192.0.2.2"]);
    expect_refused(&ended, ended.code, &["--allow-public 192.0.2.1"]);
}

#[test]
fn a_file_that_is_no_experiment_is_wrong_usage_and_the_key_is_named() {
    for (text, words) in [
        ("experiment = hold", vec!["line 1"]),
        ("url = 'tcp://127.0.0.1:7000'", vec!["experiment is missing"]),
        ("experiment = 'hold'\nurl = 'tcp://127.0.0.1:7000'\nconections = 5", vec!["conections"]),
        ("experiment = 'dance'\nurl = 'tcp://127.0.0.1:7000'", vec!["dance"]),
        ("experiment = 'hold'\nurl = 'tcp://127.0.0.1:7000'\nconnections = 'many'", vec!["many"]),
    ] {
        let directory = directory();
        let path = directory.path().join("bad.toml");
        fs::write(&path, text).unwrap();
        let name = path.display().to_string();
        let ended = start_in(directory, &["run", &name]).finish();
        expect_refused(&ended, 2, &[&["bad.toml"], words.as_slice()].concat());
    }
    expect_refused(&run(&["run", "/nonexistent.toml"]), 1, &["/nonexistent.toml"]);
}

#[test]
fn a_file_that_is_no_result_cannot_be_drawn_and_it_says_why() {
    let redraw = |text: &str| {
        let directory = directory();
        let path = directory.path().join("some.json");
        fs::write(&path, text).unwrap();
        let name = path.display().to_string();
        start_in(directory, &["report", &name]).finish()
    };
    expect_refused(&redraw("once upon a time"), 1, &["some.json", "not JSON"]);
    expect_refused(&redraw(""), 1, &["some.json", "not JSON"]);
    expect_refused(&redraw("{}"), 1, &["some.json", "not a plimsoll result"]);
    expect_refused(
        &redraw(r#"{"plimsoll": "9.9.9", "schema": 99}"#),
        1,
        &["schema 99", "use plimsoll 9.9.9"],
    );
    expect_refused(&redraw(r#"{"plimsoll": "0.1.0", "schema": 1}"#), 1, &["damaged", "missing field"]);
    expect_refused(&run(&["report", "/nonexistent.json"]), 1, &["/nonexistent.json", "No such file"]);
}

#[test]
fn a_node_whose_port_is_taken_says_which() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    expect_refused(&run(&["serve", &format!("tcp://{address}")]), 1, &[&address, "in use"]);
    let ended = hold(&format!("tcp://{address}"), &["--serve", "-c", "10"]);
    expect_refused(&ended, 1, &[&address, "in use"]);
    let ended = run(&["serve", "tls://127.0.0.1:1", "--cert", "/nonexistent", "--key", "/nonexistent"]);
    expect_refused(&ended, 1, &["/nonexistent"]);
}

#[test]
fn a_process_that_is_not_there_leaves_the_targets_side_unknown_and_says_how_to_see_it() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let url = format!("tcp://{}", server.addr);
    let flags = ["-c", "100", "--stages", "1", "--hold", "0s", "--process", "no-such-program"];
    let ended = start(&[&["hold", &url], &flags[..]].concat()).finish();
    expect(&ended, 0, &["no-such-program", "--pid"]);
}

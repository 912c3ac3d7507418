//! Where does it break, what breaks it, and does Plimsoll name both?

use crate::harness::{Ended, Node, descriptors, hold};
use model::RunResult;
use model::result::{Finding, Purpose, Status};
use testkit::bad;
use testkit::limited::Limits;

/// Descriptors that the node may have.
const NOFILE: u64 = 600;

fn finding<'a>(result: &'a RunResult, id: &str) -> &'a Finding {
    result.limits.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("{id} is not on the ladder"))
}

/// A node that can hold as many connections as descriptors are left to it, and that number, seen from outside.
fn short_of_descriptors() -> (Node, u64) {
    let node = Node::start_under(Limits::nofile(NOFILE), "tcp", &[]);
    let left = NOFILE - descriptors(node.running.pid());
    (node, left)
}

/// Grows until it breaks, which is at `truth`, for the reason `first`.
fn finds(ended: &Ended, truth: u64, first: &str) -> RunResult {
    ended.expect_code(0);
    let result = ended.result();
    let line = &result.line;
    let tolerated = truth / 100;
    assert!(
        line.broke && line.connections.abs_diff(truth) <= tolerated,
        "the true line is {truth}: {line:?}"
    );
    assert!(result.verdict.held && result.verdict.trusted);
    assert_eq!(result.verdict.first_limit.as_deref(), Some(first), "{}", result.verdict.sentence);
    let named = finding(&result, first);
    assert_eq!(named.status, Status::Hit, "{named:?}");
    let ceiling = named.ceiling_connections.expect("it is counted in connections");
    assert!(ceiling.abs_diff(truth) <= tolerated, "the true ceiling is {truth}: {named:?}");
    assert!(!named.evidence.is_empty() && !named.remedy.is_empty(), "{named:?}");
    let others: Vec<_> =
        result.limits.iter().filter(|f| f.status == Status::Hit && f.id != first).map(|f| &f.id).collect();
    assert!(others.is_empty(), "{others:?} did not break it");
    let confirmed = result.stages.iter().rfind(|s| s.purpose == Purpose::Confirm).expect("it was confirmed");
    assert!(confirmed.passed && confirmed.connections == line.connections, "{confirmed:?}");
    assert!(ended.stdout.contains("the line is"), "{}", ended.stdout);
    result
}

#[test]
fn the_line_of_a_node_short_of_descriptors_is_found_within_one_percent_and_nofile_is_named() {
    let (node, truth) = short_of_descriptors();
    let ended = hold(&node.url(), &["--until-it-breaks", "-c", "2400", "--hold", "2s", "--heartbeat", "1s"]);
    let result = finds(&ended, truth, "server.nofile");
    assert!(finding(&result, "server.nofile").evidence.iter().any(|e| e.contains("600 soft")));
}

#[test]
fn the_line_of_a_node_that_turns_away_at_five_hundred_is_five_hundred() {
    let node = Node::start("tcp", &["--max-connections", "500"]);
    let ended = hold(&node.url(), &["--until-it-breaks", "-c", "2000", "--hold", "2s", "--heartbeat", "1s"]);
    let result = finds(&ended, 500, "server.max-connections");
    assert_eq!(result.line.connections, 500);
}

#[test]
fn the_line_of_a_web_server_that_says_503_is_found_and_its_words_are_quoted() {
    let node = Node::start("http", &["--max-connections", "500"]);
    let ended = hold(&node.url(), &["--until-it-breaks", "-c", "2000", "--hold", "1s", "--heartbeat", "1s"]);
    let result = finds(&ended, 500, "server.max-connections");
    assert_eq!(result.line.connections, 500);
    let named = finding(&result, "server.max-connections");
    assert!(named.evidence.iter().any(|e| e.contains("503")), "{named:?}");
}

#[test]
fn the_line_of_a_server_that_does_not_break_is_all_that_was_asked() {
    let server = bad::start(bad::Kind::Echo).unwrap();
    let ended = hold(
        &format!("tcp://{}", server.addr),
        &["--until-it-breaks", "-c", "1000", "--hold", "1s", "--heartbeat", "1s"],
    );
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!((result.line.connections, result.line.broke), (1_000, false));
    assert_eq!(result.verdict.first_limit, None);
}

#[test]
fn a_hold_beyond_the_descriptors_of_the_node_ends_with_three_and_names_them() {
    let (node, truth) = short_of_descriptors();
    let ended = hold(&node.url(), &["-c", "1000", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"]);
    ended.expect_code(3);
    let result = ended.result();
    assert_eq!(result.verdict.first_limit.as_deref(), Some("server.nofile"), "{}", result.verdict.sentence);
    assert!(!result.verdict.held && result.verdict.trusted);
    assert_eq!(result.line.connections, 500, "the last stage that passed");
    let ceiling = finding(&result, "server.nofile").ceiling_connections.expect("it is counted");
    assert!(ceiling.abs_diff(truth) <= truth / 100, "{ceiling} of {truth}");
    assert!(finding(&result, "server.nofile").remedy.iter().any(|line| line.contains("LimitNOFILE")));
}

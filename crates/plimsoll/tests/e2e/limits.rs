//! Is the catalogue told, and can each limit of it be made to happen?

use crate::harness::{alone, run};

#[test]
fn the_catalogue_lists_every_limit_with_its_question() {
    let ended = run(&["limits"]);
    ended.expect_code(0);
    assert_eq!(ended.stderr, "");
    // A question may go on below itself.
    let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = said.as_str();
    for facts in limits::LIMITS.iter().map(|limit| limit.facts()) {
        let (_, after) = rest.split_once(facts.id).unwrap_or_else(|| panic!("no {}: {said}", facts.id));
        let (_, after) = after.split_once(facts.question).unwrap_or_else(|| panic!("{}: {said}", facts.id));
        rest = after;
    }
    assert_eq!(rest, "");
    assert!(!ended.stdout.contains('\u{1b}'), "no colour where nobody looks");
}

#[test]
fn of_one_limit_all_is_told_and_the_lines_are_the_shells() {
    for facts in limits::LIMITS.iter().map(|limit| limit.facts()) {
        let ended = run(&["limits", facts.id]);
        ended.expect_code(0);
        ended.expect_words(&[
            facts.id,
            facts.question,
            "SEE IT",
            "LIFT IT",
            "MAKE IT HAPPEN",
            // only a churn sees an application's pool
            if facts.id.starts_with("pool.") { "churn" } else { "hold" },
            "\nEND\n",
        ]);
        let pasted = ended.stdout.lines().skip_while(|line| !line.starts_with("PLIMSOLL="));
        let pasted = pasted.collect::<Vec<_>>().join("\n");
        let read =
            std::process::Command::new("sh").args(["-n", "-c", &pasted]).status().expect("sh is there");
        assert!(read.success() && pasted.contains(crate::harness::PLIMSOLL), "{}: {pasted}", facts.id);
    }
}

#[test]
fn an_unknown_limit_is_wrong_usage_and_the_nearest_is_named() {
    let ended = run(&["limits", "server.nofiel"]);
    ended.expect_code(2);
    ended.expect_words(&["server.nofiel", "did you mean server.nofile?"]);
    let ended = run(&["limits", "weather", "--induce"]);
    ended.expect_code(2);
    assert!(!ended.stderr.contains("did you mean"), "{}", ended.stderr);
    run(&["limits", "--induce"]).expect_code(2);
}

#[test]
fn a_limit_of_the_nodes_own_number_is_made_to_happen_and_named() {
    let _alone = alone();
    let ended = run(&["limits", "server.max-connections", "--induce"]);
    ended.expect_code(0);
    ended.expect_words(&["the line is 100", "server.max-connections: the server", "LADDER", "HIT"]);
}

#[test]
fn a_worker_out_of_descriptors_is_made_to_happen_and_named() {
    let _alone = alone();
    let ended = run(&["limits", "client.nofile", "--induce"]);
    ended.expect_code(0);
    ended.expect_words(&["(client.nofile)", "LADDER"]);
}

#[test]
fn what_would_harm_the_host_is_told_and_not_run() {
    let ended = run(&["limits", "host.memory", "--induce"]);
    ended.expect_code(1);
    ended.expect_words(&["host.memory: Not run: ", "PLIMSOLL=", "hold tcp://"]);
    assert!(ended.seconds < 5.0, "{}", ended.said());
}

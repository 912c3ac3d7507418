//! Does the doctor see what would break, before any load, and do its lines lift it?

use std::fs;
use std::process::Command;

use crate::harness::{Ended, Node, port, run};
use testkit::limited::Limits;

/// What must be there whatever is asked.
fn lists_the_ladder(ended: &Ended) {
    let ceilings = ["client.nofile", "client.ephemeral-ports", "server.nofile", "host.memory"];
    ended.expect_words(&ceilings);
    ended.expect_words(&["listen.accept-queue", "server.max-connections", "server.memory", "client.cpu"]);
    assert!(ended.seconds < 20.0, "{}", ended.said());
    assert_eq!(ended.stderr, "");
}

/// The number of the ladder's row for this limit.
fn ceiling(ended: &Ended, id: &str) -> u64 {
    let row = ended.stdout.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("no {id}"));
    let after = row.split(id).nth(1).unwrap_or_default().trim_start().trim_start_matches("> ");
    let digits: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("{id} has no ceiling: {row}"))
}

fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo can be read");
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("MemAvailable") * 1024
}

#[test]
fn a_few_connections_fit_on_this_machine_and_the_doctor_finds_nothing() {
    let ended = run(&["doctor", "-c", "100"]);
    ended.expect_code(0);
    lists_the_ladder(&ended);
    assert!(ceiling(&ended, "client.nofile") > 100 && ceiling(&ended, "host.memory") > 100);
}

#[test]
fn without_a_url_it_speaks_of_no_target() {
    let ended = run(&["doctor", "-c", "100"]);
    assert!(!ended.stdout.contains("127.0.0.1:"), "nobody named that target: {}", ended.stdout);
}

#[test]
fn two_hundred_thousand_fit_where_there_is_memory_for_them() {
    let ended = run(&["doctor", "-c", "200k"]);
    lists_the_ladder(&ended);
    // both ends of a connection on this machine take about 8 KiB; twice that is surely enough
    if available_bytes() > 200_000 * 16 * 1024 {
        ended.expect_code(0);
    } else {
        assert!([0, 3].contains(&ended.code), "{}", ended.said());
    }
}

#[test]
fn ten_billion_do_not_fit_anywhere_and_the_first_to_break_is_named() {
    // it must not need memory for what it only counts: a gigabyte is plenty
    let limits = Limits { address_space_kib: Some(1024 * 1024), ..Limits::default() };
    let mut command = limits.command(crate::harness::PLIMSOLL);
    command.args(["doctor", "-c", "10000M"]);
    let ended = crate::harness::start_command(crate::harness::directory(), command).finish();
    ended.expect_code(3);
    lists_the_ladder(&ended);
    assert!(ceiling(&ended, "host.memory") < 10_000_000_000);
}

#[test]
fn a_server_short_of_descriptors_is_seen_and_the_lines_that_lift_it_can_be_pasted() {
    let node = Node::start_under(Limits::nofile(600), "tcp", &[]);
    let left = 600 - crate::harness::descriptors(node.running.pid());
    let url = node.url();
    let ended = run(&["doctor", "-c", "200k", &url]);
    ended.expect_code(3);
    lists_the_ladder(&ended);
    let seen = ceiling(&ended, "server.nofile");
    assert!(seen.abs_diff(left) <= 3, "{seen} of {left}: {}", ended.stdout);
    ended.expect_words(&["LimitNOFILE=", "600"]);
    let row = |id: &str| ended.stdout.find(id).unwrap();
    assert!(row("server.nofile") < row("host.memory"), "what breaks first stands first: {}", ended.stdout);

    assert_eq!(run(&["doctor", "-c", "100", &url]).code, 0, "100 fit");

    // the line for the process that runs does what it says, as far as whoever runs this test may
    let line = ended.stdout.lines().map(str::trim).find(|line| line.starts_with("prlimit")).expect("a line");
    assert!(line.contains(&format!("--pid {} ", node.running.pid())), "{line}");
    let lifted = Command::new("sh").args(["-c", line]).output().expect("sh is there");
    if lifted.status.success() {
        let again = run(&["doctor", "-c", "200k", &url]);
        assert!(ceiling(&again, "server.nofile") >= 200_000, "{}", again.stdout);
    } else {
        eprintln!("not pasted: {}", String::from_utf8_lossy(&lifted.stderr));
    }
}

#[test]
fn a_generator_short_of_descriptors_is_lifted_by_more_workers_or_says_so() {
    let directory = crate::harness::directory();
    let mut command = Limits::nofile(256).command(crate::harness::PLIMSOLL);
    command.args(["doctor", "-c", "200k"]);
    let ended = crate::harness::start_command(directory, command).finish();
    lists_the_ladder(&ended);
    let most = ceiling(&ended, "client.nofile");
    let fits = most >= 200_000;
    ended.expect_code(if fits { 0 } else { 3 });
    assert!(ended.stdout.contains("a worker holds 2"), "fewer than 256 each: {}", ended.stdout);
}

#[test]
fn a_server_that_is_not_there_is_unknown_and_says_how_to_see_it() {
    let url = format!("tcp://127.0.0.1:{}", port());
    let ended = run(&["doctor", "-c", "100", &url]);
    lists_the_ladder(&ended);
    ended.expect_code(0);
    ended.expect_words(&["unknown", "start the target"]);
}

#[test]
fn no_load_is_put_on_the_server() {
    let server = testkit::bad::start(testkit::bad::Kind::Echo).unwrap();
    run(&["doctor", "-c", "200k", &format!("tcp://{}", server.addr)]);
    assert_eq!(server.accepted(), 0);
}

/// Lines of an emitted file that set something.
fn set(ended: &Ended) -> Vec<&str> {
    ended.stdout.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn the_files_that_would_make_it_fit_name_what_is_set_now_and_what_is_too_low() {
    let node = Node::start_under(Limits::nofile(600), "tcp", &[]);
    let url = node.url();
    let emitted = |form: &str, n: &str| {
        let ended = run(&["doctor", "-c", n, "--emit", form, &url]);
        ended.expect_code(0);
        assert_eq!(ended.stderr, "");
        ended
    };
    let unit = emitted("systemd", "20k");
    let lines = set(&unit);
    assert_eq!(lines[0], "[Service]");
    let limit = lines[1].strip_prefix("LimitNOFILE=").expect("the node is short of descriptors");
    assert!((20_000..60_000).contains(&limit.parse::<u64>().expect("a number")), "{limit}");
    unit.expect_words(&["# now 600: "]);

    let user = emitted("limits", "20k");
    assert!(set(&user).contains(&format!("* hard nofile {limit}").as_str()), "{}", user.stdout);

    // the remedy of the ladder has the same figure
    run(&["doctor", "-c", "20k", &url]).expect_words(&[&format!("LimitNOFILE={limit}")]);

    // what is set now is no line: sysctl's own figures stand in the comments only
    let kernel = emitted("sysctl", "10M");
    for line in set(&kernel) {
        let (name, wanted) = line.split_once(" = ").expect("NAME = VALUE");
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let now = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let number = |text: &str| text.split_whitespace().next_back().and_then(|n| n.parse::<u64>().ok());
        assert!(number(&now) < number(wanted), "{line}: it is {now}");
        kernel.expect_words(&[&format!("# now {}", now.trim().replace('\t', " "))]);
    }
    assert!(
        set(&kernel).iter().any(|line| line.starts_with("fs.file-max") || line.starts_with("fs.nr_open"))
    );
}

#[test]
fn where_nothing_needs_lifting_the_file_says_so_in_a_comment() {
    for form in ["sysctl", "systemd", "limits"] {
        let ended = run(&["doctor", "-c", "100", "--emit", form]);
        ended.expect_code(0);
        assert_eq!(set(&ended), Vec::<&str>::new(), "{}", ended.stdout);
        ended.expect_words(&["nothing here is too low"]);
    }
    run(&["doctor", "-c", "100", "--emit", "ini"]).expect_code(2);
}

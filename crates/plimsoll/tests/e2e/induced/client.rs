//! Limits of the generator.

use std::process::Command;

use testkit::cgroup::Cgroup;
use testkit::limited::Limits;

use super::{apply, foretold, group, named_first, passes, repeats, run_in_namespace};
use crate::harness::{Going, Node, PLIMSOLL, alone, run, say, start_hold, start_hold_by, tool, trusted};

#[test]
fn ports_of_a_source_in_a_namespace() {
    let range = "echo '40000 40199' > /proc/sys/net/ipv4/ip_local_port_range";
    let words = ["hold", "tcp://127.0.0.1:7000", "--serve", "-c", "300", "--stages", "3", "--hold", "1s"];
    let one = [&words[..], &["--source", "127.0.0.1"]].concat();
    let Some(ended) = run_in_namespace(range, &one) else { return };
    // the plan sees it before the first socket is opened
    ended.expect_words(&["client.ephemeral-ports", "need 2 source addresses", "--source"]);
    assert_ne!(ended.code, 0, "{}", ended.said());
    let many = [&words[..], &["--source", "127.0.0.1,127.0.0.2"]].concat();
    passes("client.ephemeral-ports", &run_in_namespace(range, &many).expect("it was possible before"));
}

/// Takes all ports that there are from 127.0.0.1 to one destination, with plain sockets, and prints how many.
const TAKE_ALL: &str = "
import socket
server = socket.create_server(('127.0.0.1', 7001), backlog=4096)
taken = []
try:
    while True:
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        client.bind(('127.0.0.1', 0))
        client.connect(('127.0.0.1', 7001))
        taken += [client, server.accept()]
except OSError:
    print(len(taken) // 2)
";

#[test]
fn the_ports_of_a_source_are_foretold() {
    let range = "echo '40000 40999' > /proc/sys/net/ipv4/ip_local_port_range";
    let words = [
        "hold",
        "tcp://127.0.0.1:7000",
        "--serve",
        "--source",
        "127.0.0.1",
        "--hold",
        "1s",
        "--heartbeat",
        "1s",
    ];
    let smaller = [&words[..], &["-c", "200", "--stages", "2"]].concat();
    let Some(smaller) = run_in_namespace(range, &smaller) else { return };
    let script = format!("ip link set lo up\n{range}\nexec python3 -c \"$0\"");
    let taken = tool("unshare").args(["-n", "sh", "-euc", &script, TAKE_ALL]).output();
    let taken = String::from_utf8(taken.expect("unshare is there").stdout).expect("a number");
    let Ok(found) = taken.trim().parse() else {
        return say("skipped: there is no python3 to count ports with");
    };
    foretold("client.ephemeral-ports", &smaller, found, 5);
    // That many are tried and held; one more is refused by the plan, which leaves the last twentieth to others.
    let told = super::finding(&smaller.result(), "client.ephemeral-ports").ceiling_connections;
    let all = told.expect("it was foretold").to_string();
    let filled = run_in_namespace(range, &[&words[..], &["-c", &all, "--until-it-breaks"]].concat());
    let filled = filled.expect("it was possible before").result();
    assert_eq!(
        (Some(filled.line.connections), filled.line.broke),
        (told, false),
        "{}",
        filled.verdict.sentence
    );
}

#[test]
fn ports_that_others_have_taken_already() {
    for repeat in 1..=repeats() {
        let ended = run(&["limits", "client.ephemeral-ports", "--induce"]);
        if ended.stderr.contains("cannot be made") {
            return say("skipped: no network namespace can be made here");
        }
        ended.expect_code(0);
        let named = ["(client.ephemeral-ports)", "connect() gave EADDRNOTAVAIL"];
        assert!(
            named.iter().all(|words| ended.stdout.contains(words)),
            "in repeat {repeat}: {}",
            ended.said()
        );
    }
}

/// Descriptors that a worker is left with in the middle of a run.
const NOFILE: &str = "1024";

/// Lowers the limit of the only worker once its first stage is over: the plan would refuse what does not fit.
fn lower(mut going: Going) -> Going {
    going.wait_for_stages(1);
    let [worker] = going.workers()[..] else { panic!("one worker was asked for") };
    let flags = [format!("--pid={worker}"), format!("--nofile={NOFILE}")];
    let lowered = Command::new("prlimit").args(flags).status().expect("prlimit is there");
    assert!(lowered.success());
    going
}

#[test]
fn descriptors_of_a_worker_and_the_line_that_does_with_as_few() {
    let node = Node::start("tcp", &[]);
    let held = ["--hold", "1s", "--heartbeat", "1s"];
    let named = named_first("client.nofile", || {
        let size = ["-c", "1200", "--stages", "2", "--workers", "1", "--rate", "600"];
        lower(start_hold(&node.url(), &[&size[..], &held].concat())).finish()
    });
    // The first line is a command of Plimsoll's own; all that is added is how long to hold.
    let words: Vec<&str> = named.remedy[0].split(' ').collect();
    let ["plimsoll", "hold", url, size @ ..] = &words[..] else { panic!("{named:?}") };
    let limited = || Limits::nofile(NOFILE.parse().expect("a number")).command(PLIMSOLL);
    let flags = [size, &held].concat();
    passes("client.nofile", &trusted(|| start_hold_by(limited(), url, &flags).finish()));
}

#[test]
fn the_descriptors_of_a_worker_are_foretold() {
    let node = Node::start("tcp", &[]);
    let held = ["--workers", "1", "--hold", "1s", "--heartbeat", "1s"];
    let limited = || Limits::nofile(NOFILE.parse().expect("a number")).command(PLIMSOLL);
    let small = [&held[..], &["-c", "300", "--stages", "2"]].concat();
    let smaller = trusted(|| start_hold_by(limited(), &node.url(), &small).finish());
    let search = [&held[..], &["-c", "2400", "--until-it-breaks", "--rate", "600"]].concat();
    let broken = lower(start_hold(&node.url(), &search)).finish().result();
    assert!(broken.line.broke, "{}", broken.verdict.sentence);
    assert_eq!(broken.verdict.first_limit.as_deref(), Some("client.nofile"), "{}", broken.verdict.sentence);
    foretold("client.nofile", &smaller, broken.line.connections, 5);
}

#[test]
fn cpu_of_the_generator_in_a_control_group_and_the_line_that_raises_it() {
    let _alone = alone();
    let Some(group) = group(Cgroup::with_cpu_quota, 0.05) else { return };
    let node = Node::start("tcp", &[]);
    let size = ["-c", "1500", "--stages", "1", "--hold", "1s", "--heartbeat", "500ms"];
    let run = || start_hold_by(group.command(PLIMSOLL), &node.url(), &size).finish();
    let named = named_first("client.cpu", run);
    apply(&named, &["echo "]);
    // On a machine that is busy with other things it may be late without a quota too.
    passes("client.cpu", &trusted(run));
}

#[test]
fn memory_of_the_generator_in_a_control_group_and_the_line_that_raises_it() {
    let Some(group) = group(Cgroup::with_memory_limit, 1 << 30) else { return };
    let node = Node::start("tls", &[]);
    let size =
        ["--insecure", "-c", "6000", "--stages", "2", "--workers", "1", "--hold", "1s", "--heartbeat", "1s"];
    let start = || start_hold_by(group.command(PLIMSOLL), &node.url(), &size);
    // The plan would refuse what does not fit: so it is others that take the room, once the first stage is over.
    let named = named_first("client.memory", || {
        group.set_memory(1 << 30).expect("it can be lifted again");
        let mut going = start();
        going.wait_for_stages(1);
        group.leave_memory(4 << 20).expect("it can be lowered");
        going.finish()
    });
    assert!(
        named.evidence.iter().any(|e| e.contains("out-of-memory kills in its cgroup rose by")),
        "{named:?}"
    );
    apply(&named, &["echo "]);
    passes("client.memory", &start().finish());
}

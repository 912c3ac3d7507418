//! Is a target on another host seen as one on this host is, through its observer and its own metrics?

use std::process::Command;

use crate::harness::{
    Ended, Going, PLIMSOLL, SOON, Stranger, directory, hold, port, run, say, start_command, tool, wait_until,
};
use model::RunResult;
use model::result::Status;
use testkit::limited::Limits;

/// Two hosts, as two network namespaces with a cable between them.
struct Hosts {
    names: [String; 2],
}

/// The address of the server's host; the client's is 10.78.0.1.
const SERVER: &str = "10.78.0.2";
const SECRET: &str = "not to be read in any result";

impl Hosts {
    /// `None`, having said why: this machine has none.
    fn new(test: &str) -> Option<Self> {
        let names = ["client", "server"].map(|side| format!("plimsoll-{test}-{side}-{}", std::process::id()));
        let hosts = Self { names };
        let [client, server] = &hosts.names;
        let script = format!(
            "ip netns add {client}; ip netns add {server}
             ip link add name c0 netns {client} type veth peer name s0 netns {server}
             ip -n {client} address add 10.78.0.1/24 dev c0; ip -n {client} link set c0 up
             ip -n {server} address add {SERVER}/24 dev s0; ip -n {server} link set s0 up
             ip -n {server} link set lo up; ip -n {client} link set lo up"
        );
        let made = tool("sh").args(["-euc", &script]).output().expect("sh is there");
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).into_owned();
            say(&format!("skipped: no two network namespaces can be joined here: {why}"));
            return None;
        }
        Some(hosts)
    }

    fn command(&self, host: usize, program: Command) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.names[host]])
            .arg(program.get_program())
            .args(program.get_args());
        command
    }

    /// Starts the binary on the server's host, under lowered limits; returns once it has said that it is ready.
    fn serve(&self, limits: Limits, words: &[&str]) -> Going {
        let mut program = limits.command(PLIMSOLL);
        program.args(words);
        let directory = directory();
        let said = directory.path().join("stdout");
        let mut command = self.command(1, program);
        command.env("PLIMSOLL_OBSERVER_TOKEN", SECRET);
        let going = start_with_secret(directory, command);
        wait_until("it is ready", SOON, || {
            std::fs::read_to_string(&said).is_ok_and(|said| said.contains("Ctrl-C ends it")).then_some(())
        });
        going
    }

    /// Holds from the client's host.
    fn hold(&self, secret: &str, words: &[&str]) -> Ended {
        let directory = directory();
        let result = directory.path().join("result.json");
        let mut program = Command::new(PLIMSOLL);
        program
            .arg("hold")
            .args(words)
            .args(["--quiet", "--observer-token", secret])
            .arg("--json")
            .arg(result);
        start_command(directory, self.command(0, program)).finish()
    }
}

/// Starts a command whose secret stands in its environment, which `start_command` clears of all that is ours.
fn start_with_secret(directory: tempfile::TempDir, command: Command) -> Going {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("PLIMSOLL_OBSERVER_TOKEN='{SECRET}' exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    start_command(directory, shell)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn status(result: &RunResult, id: &str) -> Status {
    result.limits.iter().find(|f| f.id == id).map(|f| f.status).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn a_target_on_another_host_is_seen_through_its_observer() {
    let Some(hosts) = Hosts::new("see") else { return };
    let _node =
        hosts.serve(Limits::default(), &["serve", &format!("tcp://{SERVER}:7000"), "--processes", "1"]);
    let observer =
        hosts.serve(Limits::default(), &["observe", "--listen", &format!("{SERVER}:9600"), "--tls"]);
    let certificate = observer.directory.path().join("plimsoll/node-cert.pem").display().to_string();
    let url = format!("tcp://{SERVER}:7000");
    let words = ["-c", "1000", "--stages", "5", "--hold", "1s", "--heartbeat", "1s"];

    let blind = hosts.hold(SECRET, &[&[&*url], &words[..]].concat()).result();
    assert_eq!(status(&blind, "listen.accept-queue"), Status::Unknown);
    assert!(blind.cost.target.user_bytes_per_connection.is_none());

    // The certificate that it signed itself is for localhost.
    let seeing = ["--observer", &format!("https://{SERVER}:9600"), "--insecure"];
    let ended = hosts.hold(SECRET, &[&[&*url], &words[..], &seeing].concat());
    ended.expect_code(0);
    let result = ended.result();
    assert!(!result.settings.same_host && result.settings.target_host.is_some());
    assert_eq!(result.target.processes[0].name, "plimsoll");
    assert_eq!(result.settings.target[0].pid, result.target.processes[0].pid);
    assert!(result.cost.target.user_bytes_per_connection.is_some(), "{:?}", result.cost.target);
    let each = result.cost.target.descriptors_per_connection.expect("descriptors were read").value;
    assert!((each - 1.0).abs() < 0.05, "{each}");
    for id in ["listen.accept-queue", "listen.syn-queue", "server.nofile", "host.memory", "host.cpu"] {
        assert_eq!(status(&result, id), Status::Clear, "{id}");
    }
    let written = std::fs::read_to_string(ended.file()).expect("the result");
    assert!(!written.contains(SECRET) && !ended.said().contains(SECRET), "the secret is told");

    let refused = hosts.hold("wrong", &[&[&*url], &words[..], &seeing].concat());
    refused.expect_code(1);
    refused.expect_words(&["the observer at https://10.78.0.2:9600", "401", "token"]);
    let distrusted = hosts.hold(SECRET, &[&*url, "-c", "1", "--observer", seeing[1], "--ca", &certificate]);
    distrusted.expect_code(1);
    distrusted.expect_words(&["the observer at", "certificate"]);
}

#[test]
fn a_limit_of_another_host_is_named_with_the_host_on_which_to_lift_it() {
    let Some(hosts) = Hosts::new("name") else { return };
    let limits = Limits { nofile: Some(300), ..Limits::default() };
    let _node = hosts.serve(limits, &["serve", &format!("tcp://{SERVER}:7000"), "--processes", "1"]);
    let _observer = hosts.serve(Limits::default(), &["observe", "--listen", &format!("{SERVER}:9600")]);
    let url = format!("tcp://{SERVER}:7000");
    let observer = format!("http://{SERVER}:9600");
    let words = ["-c", "360", "--stages", "4", "--hold", "1s", "--heartbeat", "1s", "--observer", &observer];
    let ended = hosts.hold(SECRET, &[&[&*url], &words[..]].concat());
    ended.expect_code(3);
    let result = ended.result();
    assert_eq!(result.verdict.first_limit.as_deref(), Some("server.nofile"), "{}", result.verdict.sentence);
    let named = result.limits.iter().find(|f| f.id == "server.nofile").expect("it is on the ladder");
    assert!(named.remedy[0].contains("the target's host"), "{named:?}");
    assert!(named.remedy.iter().any(|line| line.starts_with("prlimit ")), "{named:?}");
}

#[test]
fn an_observer_that_others_can_reach_wants_a_secret() {
    let ended = run(&["observe", "--listen", "0.0.0.0:9600"]);
    ended.expect_code(2);
    ended.expect_words(&["others can reach it", "PLIMSOLL_OBSERVER_TOKEN"]);
    let ended = run(&[
        "hold",
        "tcp://127.0.0.1:7000",
        "-c",
        "1",
        "--observer",
        &format!("http://127.0.0.1:{}", port()),
    ]);
    ended.expect_code(1);
    ended.expect_words(&["the observer at http://127.0.0.1", "plimsoll observe --listen"]);
}

#[test]
fn a_server_in_go_tells_its_heap() {
    let Some(server) = Stranger::start("node-exporter") else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let metrics = format!("{url}metrics");
    let words = ["-c", "500", "--stages", "5", "--hold", "1s", "--heartbeat", "1s", "--metrics", &metrics];
    let ended = hold(&url, &words);
    ended.expect_code(0);
    let result = ended.result();
    let heap = result.after.target.as_ref().and_then(|g| g.heap.clone()).expect("its heap");
    assert!(heap.source.contains("go_memstats_heap_alloc_bytes"), "{heap:?}");
    assert!(heap.used_bytes > 500_000 && heap.collections.is_some(), "{heap:?}");
    let nothing = hold(&url, &["-c", "1", "--metrics", &url]);
    nothing.expect_code(1);
    nothing.expect_words(&["none of its metrics is known", "process_"]);
}

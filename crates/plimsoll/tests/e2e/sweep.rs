//! Are clients measured at work, at each count and on each way, and is it told when they could not be served?

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Ended, Going, Node, PLIMSOLL, SOON, alone, directory, established_to, port, signal, start_command, tool,
    trusted, wait_until,
};
use model::FailureKind;
use model::result::RunResult;
use model::sweep::SweepPoint;
use testkit::limited::Signal;

/// Starts a sweep that writes `result.json`.
fn start_sweep(words: &[&str]) -> Going {
    let directory = directory();
    let mut command = Command::new(PLIMSOLL);
    command.arg("sweep").args(words).arg("--json").arg(directory.path().join("result.json"));
    start_command(directory, command)
}

/// Runs a sweep to its end.
pub(crate) fn sweep(words: &[&str]) -> Ended {
    start_sweep(words).finish()
}

pub(crate) fn points(result: &RunResult) -> &[SweepPoint] {
    &result.sweep.as_ref().expect("what came of the sweep").points
}

pub(crate) const SHORT: [&str; 4] = ["--warm-up", "200ms", "--measure", "1s"];

#[test]
fn each_client_of_each_count_works_and_each_operation_is_counted_once() {
    let _alone = alone();
    for scheme in ["tcp", "ws", "grpc"] {
        let node = Node::start(scheme, &[]);
        let ended = sweep(&[&[node.url().as_str(), "-c", "1,4,16"], &SHORT[..]].concat());
        // An echo costs the generator as much as the node: which of them fills the CPUs first is the machine's.
        assert!([0, 4].contains(&ended.code), "{scheme}: {}", ended.said());
        let result = ended.result();
        let counts: Vec<u64> = points(&result).iter().map(|p| p.clients).collect();
        assert_eq!(counts, [1, 4, 16], "{scheme}");
        for point in points(&result) {
            let n = point.clients;
            assert_eq!((point.connected, point.served, point.lost), (n, n, 0), "{scheme}");
            assert_eq!(point.slices.iter().sum::<u64>(), point.operations, "{scheme}");
            let latency = point.latency.expect("latencies");
            assert_eq!(latency.count, point.operations, "{scheme}");
            // Little's law: in a closed loop every client always waits for something.
            let at_work = point.per_second() * latency.mean_ms / 1e3;
            assert!((at_work / n as f64 - 1.0).abs() < 0.1, "{scheme}: {at_work} of {n} clients at work");
            assert!(point.cpu.target_cpu_seconds > Some(0.0), "{scheme}: {:?}", point.cpu);
            assert!((0.9..1.2).contains(&point.cpu.seconds), "{scheme}: {:?}", point.cpu);
        }
        let all: u64 = points(&result).iter().map(|p| p.operations).sum();
        let seen = result.series.iter().map(|m| m.messages_answered).sum::<u64>();
        assert!(seen >= all, "{scheme}: the warm-up is seen too: {seen} against {all}");
        assert_eq!(result.stages.len(), 3, "{scheme}");
        assert!(result.stages.iter().all(|s| s.passed && s.target.is_some()), "{scheme}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate_whatever_the_count_of_clients() {
    let _alone = alone();
    for arrivals in ["constant", "poisson"] {
        let ended = trusted(|| {
            let node = Node::start("tcp", &[]);
            let url = node.url();
            let words = [url.as_str(), "-c", "10,40", "--rate", "2000/s", "--arrivals", arrivals];
            sweep(&[&words[..], &SHORT[..]].concat())
        });
        ended.expect_code(0);
        for point in points(&ended.result()) {
            let due = point.due.expect("an open loop");
            assert!((1_800..2_200).contains(&due), "{arrivals}: {due} were due in a second");
            assert!((1_800..2_200).contains(&point.operations), "{arrivals}: {point:?}");
            assert!(point.unmet < Some(20), "{arrivals}: {:?}", point.unmet);
        }
    }
}

/// An API that wants a login and an order, and answers only to those who bring both.
const SHOP: &str = "
import http.server, json, sys
class Shop(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        known = self.headers['Authorization'] == 'Bearer secret' and self.headers['Host'] == 'shop.example'
        ordered = self.path == '/orders?x=1' and json.loads(body) == {'n': 1}
        json_said = self.headers['Content-Type'] == 'application/json'
        self.send_response(201 if known and ordered and json_said else 403)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Shop).serve_forever()
";

#[test]
fn an_api_gets_the_body_and_the_header_fields_that_it_wants() {
    let port = port();
    let mut command = tool("python3");
    command.args(["-c", SHOP, &port.to_string()]);
    let _shop = start_command(directory(), command);
    wait_until("the shop opens", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    let url = format!("http://127.0.0.1:{port}/orders?x=1");
    let fields = ["--metadata", "Authorization=Bearer secret", "--metadata", "host=shop.example"];
    let order = ["-c", "1,4", "--data", "{\"n\": 1}"];
    let ended = sweep(&[&[url.as_str()], &order[..], &fields, &SHORT].concat());
    assert!([0, 4].contains(&ended.code), "{}", ended.said());
    let result = ended.result();
    assert!(points(&result).iter().all(|p| p.served == p.clients && p.operations > 0), "{}", ended.said());
    let shown = std::fs::read_to_string(ended.file()).expect("the result");
    assert!(!shown.contains("Bearer secret") && shown.contains("authorization"), "the login is a secret");
    // without the login
    let refused = sweep(&[&[url.as_str()], &order[..], &fields[2..], &SHORT].concat());
    refused.expect_code(3);
    refused.expect_words(&["403"]);
    for (words, said) in [
        (&["redis://127.0.0.1:9", "--metadata", "a=b"][..], "is a header field of http, ws, sse and grpc"),
        (&["grpc://127.0.0.1:9", "--metadata", "a=b"], "goes with a --call"),
        (&["http://127.0.0.1:9", "--metadata", "content-length=5"], "not yours to set"),
        (&["ws://127.0.0.1:9", "--data", "x"], "--data is the request of a --call, or the body"),
        (&["http://127.0.0.1:9", "--message", "PUT /a b", "--data", "x"], "has a body already"),
    ] {
        let ended = sweep(words);
        ended.expect_code(2);
        ended.expect_words(&[said]);
    }
}

#[test]
fn several_ways_are_measured_in_turns_at_the_same_counts() {
    let (one, other) = (Node::start("tcp", &[]), Node::start("ws", &[]));
    let (one_url, other_url) = (one.url(), other.url());
    let ways = [one_url.as_str(), other_url.as_str(), "--label", "plain", "--label", "web", "-c", "2,8"];
    let ended = sweep(&[&ways[..], &["--repeat", "2"], &SHORT[..]].concat());
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!(result.beside.len(), 1);
    let beside = &result.beside[0];
    assert!(result.target.url.starts_with(&one_url) && beside.target.url.starts_with(&other_url));
    for (way, label) in [(&result, "plain"), (beside, "web")] {
        assert_eq!(way.spec.sweep.as_ref().map(|s| s.label.as_str()), Some(label));
        assert_eq!(points(way).iter().map(|p| p.clients).collect::<Vec<_>>(), [2, 2, 8, 8]);
        assert!(points(way).iter().all(|p| p.served == p.clients && p.operations > 0), "{label}");
    }
    // In turns: neither way's measured parts all lie before the other's.
    let times = |way| points(way).iter().map(|p: &SweepPoint| p.t_seconds).collect::<Vec<_>>();
    assert!(times(&result)[3] > times(beside)[0] && times(beside)[3] > times(&result)[0]);
}

#[test]
fn clients_that_the_server_turns_away_end_the_way_up_with_its_words() {
    let node = Node::start("tcp", &["--max-connections", "20", "--processes", "1"]);
    let ended = sweep(&[&[node.url().as_str(), "-c", "8,32,64"], &SHORT[..]].concat());
    ended.expect_code(3);
    let result = ended.result();
    let counts: Vec<(u64, u64)> = points(&result).iter().map(|p| (p.clients, p.served)).collect();
    assert_eq!(counts, [(8, 8), (32, 20)], "64 are not even tried");
    assert!(result.stages[0].passed && !result.stages[1].passed);
    assert_eq!(result.stages[1].failed.values().sum::<u64>(), 12, "{:?}", result.stages[1].failed);
}

#[test]
fn a_target_that_dies_while_clients_work_is_told_with_what_was_measured_before() {
    let node = Node::start("tcp", &["--processes", "1"]);
    let going = start_sweep(&[node.url().as_str(), "-c", "4,50", "--warm-up", "1s", "--measure", "4s"]);
    wait_until("the second count works", SOON, || (established_to(node.port) >= 50).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    node.processes().into_iter().for_each(|pid| signal(pid, Signal::Kill));
    let ended = going.finish_within(Duration::from_secs(30));
    ended.expect_code(3);
    let result = ended.result();
    let points = points(&result);
    assert_eq!((points[0].served, points[0].lost), (4, 0));
    assert_eq!((points[1].connected, points[1].lost), (50, 50));
    let failed = |kind| result.connections.failed.get(&kind).copied().unwrap_or(0);
    assert_eq!(
        failed(FailureKind::Reset) + failed(FailureKind::Closed),
        50,
        "{:?}",
        result.connections.failed
    );
}

#[test]
fn a_sweep_that_is_interrupted_still_says_what_was_measured() {
    let url = format!("tcp://127.0.0.1:{}", port());
    let words = [url.as_str(), "--serve", "-c", "1,20", "--warm-up", "100ms", "--measure", "3s"];
    let mut going = start_sweep(&words);
    let port = url.rsplit(':').next().and_then(|p| p.parse().ok()).expect("a port");
    wait_until("the second count works", SOON, || (established_to(port) >= 20).then_some(()));
    going.running.signal(Signal::Interrupt).expect("it runs");
    let ended = going.finish();
    ended.expect_code(130);
    let result = ended.result();
    assert!(result.interrupted);
    assert_eq!(points(&result).iter().map(|p| p.clients).collect::<Vec<_>>(), [1]);
    assert!(points(&result)[0].operations > 100);
}

#[test]
fn what_cannot_be_swept_is_told_before_anything_is_begun() {
    for (words, code, said) in [
        (&["tcp://127.0.0.1:9", "-c", "8..4"][..], 2, "a range must rise"),
        (&["tcp://127.0.0.1:9", "-c", "0"], 2, "at least one"),
        (&["sse://127.0.0.1:9/events", "-c", "4"], 2, "carry out no operation"),
        (&["tcp://127.0.0.1:9", "--label", "a", "--label", "b"], 2, "--label was given 2 times"),
        (&["tcp://127.0.0.1:9", "--arrivals", "poisson"], 2, "--rate"),
        (&["tcp://127.0.0.1:9", "-c", "4"], 1, "nothing listens there"),
    ] {
        let ended = sweep(words);
        ended.expect_code(code);
        ended.expect_words(&[said]);
    }
}

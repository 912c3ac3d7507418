//! Does it hold on servers that we did not write, and does it find out what they cost and which processes they are?

mod harness;

use std::process::{Command, Output};

use harness::{hold, port, repository, trusted};
use model::RunResult;
use model::result::Status;

/// A real server, started by its script in targets/ and stopped with its guard.
struct Stranger {
    name: &'static str,
    port: u16,
}

impl Stranger {
    /// `None`, having said why: it is not to be had on this machine. In CI it must be.
    fn start(name: &'static str) -> Option<Self> {
        let installed = script(name, &["install"]);
        if !installed.status.success() {
            let why = String::from_utf8_lossy(&installed.stderr).into_owned();
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{name} cannot be installed: {why}");
            say(&format!("skipped, as {name} cannot be installed here: {why}"));
            return None;
        }
        let port = port();
        // from here on it is stopped, whatever happens
        let stranger = Self { name, port };
        let started = script(name, &["start", &port.to_string()]);
        assert!(started.status.success(), "{name}: {}", String::from_utf8_lossy(&started.stderr));
        Some(stranger)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        script(self.name, &["stop", &self.port.to_string()]);
    }
}

fn script(name: &str, words: &[&str]) -> Output {
    let path = repository().join("targets").join(format!("{name}.sh"));
    Command::new("bash").arg(path).args(words).output().expect("bash is there")
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// Holds so many connections on it; asserts that each was held and verified and that a cost came of it.
fn holds(url: &str, n: u64, more: &[&str]) -> RunResult {
    let n_text = n.to_string();
    let flags = ["-c", &n_text, "--stages", "5", "--hold", "3s", "--heartbeat", "2s"];
    let ended = trusted(|| hold(url, &[&flags[..], more].concat()));
    ended.expect_code(0);
    let result = ended.result();
    let seen = &result.connections;
    assert_eq!((seen.held, seen.verified, seen.failed_total()), (n, n, 0), "{:?}", seen.failed);
    assert!(result.heartbeat.answered > 0 && result.heartbeat.missed == 0, "{:?}", result.heartbeat);
    let cost = result.cost.target.user_bytes_per_connection.expect("its memory is seen");
    let (low, high) = cost.low.zip(cost.high).expect("with an interval");
    assert!(low <= cost.value && cost.value <= high && high < 1e6, "{cost:?}");
    let descriptors = result.cost.target.descriptors_per_connection.expect("its descriptors are seen");
    assert!((descriptors.value - 1.0).abs() < 0.01, "{descriptors:?}");
    assert!(result.limits.iter().all(|f| f.status != Status::Hit), "{:?}", result.limits);
    result
}

/// The names of the target's processes with their roles, sorted.
fn processes(result: &RunResult) -> Vec<(&str, &str)> {
    let mut all: Vec<_> =
        result.target.processes.iter().map(|p| (p.name.as_str(), p.role.as_str())).collect();
    all.sort_unstable();
    all
}

#[test]
fn five_thousand_http_connections_are_held_on_nginx() {
    let Some(nginx) = Stranger::start("nginx") else { return };
    let result = holds(&format!("http://127.0.0.1:{}/", nginx.port), 5_000, &[]);
    // the master listens too, as its workers inherit its sockets
    let seen = processes(&result);
    assert_eq!(seen.len(), 3, "a master and two workers: {seen:?}");
    assert!(seen.iter().all(|(name, _)| *name == "nginx"), "{seen:?}");
    assert!(seen.iter().filter(|(_, role)| *role == "listens").count() >= 2, "{seen:?}");
}

#[test]
fn two_thousand_connections_are_held_on_redis_with_its_own_ping() {
    let Some(redis) = Stranger::start("redis") else { return };
    let url = format!("tcp://127.0.0.1:{}", redis.port);
    let result = holds(&url, 2_000, &["--send", "PING\\r\\n", "--expect", "+PONG"]);
    assert_eq!(processes(&result), [("redis-server", "listens")]);
    let cost = result.cost.target.user_bytes_per_connection.unwrap();
    assert!(cost.value > 500.0, "redis keeps more than that of a client: {cost:?}");
}

#[test]
fn a_thousand_websockets_are_held_on_an_asyncio_server() {
    let Some(asyncio) = Stranger::start("asyncio-ws") else { return };
    let result = holds(&format!("ws://127.0.0.1:{}/", asyncio.port), 1_000, &[]);
    let seen = processes(&result);
    assert!(seen.len() == 1 && seen[0].0.starts_with("python") && seen[0].1 == "listens", "{seen:?}");
    let cost = result.cost.target.user_bytes_per_connection.unwrap();
    assert!(cost.value > 5_000.0, "a connection there is several Python objects and a task: {cost:?}");
}

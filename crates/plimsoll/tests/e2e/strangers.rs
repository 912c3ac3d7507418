//! Does it hold on servers that we did not write, and does it find out what they cost and which processes they are?

use crate::harness::{Stranger, hold, trusted};
use model::RunResult;
use model::result::Status;

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

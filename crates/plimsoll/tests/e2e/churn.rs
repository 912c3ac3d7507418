//! Does a pool of others cost after idle what is told of it, and are its connections counted as it counts them?

use crate::harness::{Ended, Node, SOON, Stranger, alone, directory, port, start_in, wait_until};
use model::churn::Cell;
use model::result::Status;
use model::{ChurnResult, RunResult};
use testkit::limited::Signal;

/// `plimsoll churn URL` with these flags and a result.
fn churn(url: &str, more: &[&str]) -> Ended {
    let directory = directory();
    let file = directory.path().join("result.json").display().to_string();
    start_in(directory, &[&["churn", url, "--json", &file], more].concat()).finish()
}

fn seen(result: &RunResult) -> &ChurnResult {
    result.churn.as_ref().expect("it was a churn")
}

/// Every operation of a cell was answered.
fn all_answered(cell: &Cell, bursts: u32, burst: u64) {
    assert_eq!((cell.timeouts, cell.failed), (0, 0), "{cell:?}");
    assert_eq!(cell.bursts, bursts);
    assert_eq!(cell.operation.expect("operations").count, u64::from(bursts) * burst);
    assert_eq!(cell.first.expect("a first of each burst").count, u64::from(bursts));
}

#[test]
fn a_minimum_of_mongodbs_pool_spares_the_first_operation_after_idle_the_set_up() {
    let tls_port = port();
    let tls = tls_port.to_string();
    let settings = [("PASSWORD", "secret"), ("TLS_PORT", tls.as_str())];
    let Some(ferretdb) = Stranger::start_with("ferretdb", &settings) else { return };
    let _alone = alone();
    let ca = ferretdb.state().join("server.crt").display().to_string();
    let url = format!("mongodb://plimsoll:secret@127.0.0.1:{tls_port}/?tls=true");
    // The driver makes four connections a second for its minimum: with so short a time-out, no more than ten can stand.
    let flags = "--min-pool 0,10 --max-pool 30 --burst 10 --idle 2700ms --idle-timeout 2600ms,60s --bursts 2 --network-delay 10ms";
    let flags: Vec<&str> = flags.split(' ').collect();
    let more = [
        "--ca",
        &ca,
        "--objective",
        "40ms",
        "--instances",
        "20",
        "--server-limit",
        "500",
        "--max-lifetime",
        "9s",
    ];
    let ended = churn(&url, &[&flags[..], &more].concat());
    ended.expect_code(0);
    let result = ended.result();
    let churn = seen(&result);
    assert!(churn.lacks[0].contains("mongodb 3.8.1 knows no longest lifetime"), "{:?}", churn.lacks);
    let [cold, _, _, kept] = &churn.cells[..] else { panic!("{:?}", churn.cells) };
    for cell in &churn.cells {
        all_answered(cell, 2, 10);
        assert!(cell.counted_by.contains("the driver's events") && cell.created >= cell.closed, "{cell:?}");
        assert!(cell.most_connections <= 30 && cell.created >= cell.most_connections, "{cell:?}");
    }
    assert_eq!((kept.min_pool, kept.created, kept.created_in_cycles), (10, 10, 0), "{kept:?}");
    assert_eq!(kept.idle_connections, Some(10));
    assert!(cold.created_in_cycles > 0 && kept.chosen && kept.meets && !cold.meets, "{cold:?}");
    let first = |cell: &Cell| cell.first.expect("it was measured").p50_ms;
    assert!(first(cold) > 3.0 * first(kept), "{} ms and {} ms", first(cold), first(kept));
    // A round trip each for TCP, TLS 1.3 and the greeting, and more of them for the login.
    let price = churn.prices[0];
    for part in [price.tcp_ms, price.tls_ms, price.topology_ms, price.auth_ms] {
        assert!(part.is_some_and(|ms| (9.0..60.0).contains(&ms)), "{price:?}");
    }
    assert!(first(cold) >= price.ready_ms.expect("it was measured") * 0.8, "{price:?}");
    ended.expect_words(&["set minPoolSize=10", "maxPoolSize=25"]);
    let budget = result.limits.iter().find(|f| f.id == "pool.budget").expect("it is judged");
    assert_eq!(budget.status, Status::Near, "{budget:?}");
}

#[test]
fn pools_of_postgres_sessions_are_set_against_the_servers_own_limit() {
    let Some(postgres) = Stranger::start_with("postgres", &[("MAX_CONNECTIONS", "60")]) else { return };
    let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/", postgres.port);
    let flags =
        ["--min-pool", "0,10", "--max-pool", "20", "--burst", "20", "--idle", "300ms", "--bursts", "2"];
    let ended = churn(
        &url,
        &[&flags[..], &["--instances", "4", "--objective", "5s", "--network-delay", "0s,5ms"]].concat(),
    );
    ended.expect_code(0);
    let result = ended.result();
    let churn = seen(&result);
    assert_eq!((churn.cells.len(), churn.server_limit), (4, Some(57)), "{churn:?}");
    for cell in &churn.cells {
        all_answered(cell, 2, 20);
        assert!(cell.created >= u64::from(cell.min_pool) && cell.most_connections <= 20, "{cell:?}");
    }
    let [near, far] = [churn.prices[0], churn.prices[1]];
    assert!(near.tls_ms.is_none() && near.auth_ms.is_some(), "{near:?}");
    assert!(far.tcp_ms.is_some_and(|ms| ms >= 5.0) && far.auth_ms > near.auth_ms, "{far:?}");
    // 4 × 20 are more than the 57 that it leaves to ordinary users
    ended.expect_words(&["pool.budget", "maximumPoolSize=14", "new Pool({ max: 14 })"]);
}

#[test]
fn a_pool_of_redis_that_is_too_small_is_named_with_how_many_gave_up() {
    let Some(redis) = Stranger::start("redis") else { return };
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let flags =
        ["--max-pool", "2", "--burst", "400", "--idle", "100ms", "--bursts", "2", "--wait-timeout", "2ms"];
    let ended = churn(&url, &flags);
    ended.expect_code(3);
    let result = ended.result();
    let cell = &seen(&result).cells[0];
    assert!(cell.timeouts > 0 && cell.most_connections == 2, "{cell:?}");
    assert_eq!(cell.timeouts + cell.operation.map_or(0, |l| l.count), 800, "{cell:?}");
    assert_eq!(result.verdict.first_limit.as_deref(), Some("pool.too-small"), "{}", result.verdict.sentence);
    ended.expect_words(&["pool.too-small", ".max_size(400)", "operations found no connection in time"]);
}

#[test]
fn connections_of_an_http_client_that_are_closed_while_idle_are_made_anew() {
    let node = Node::start("http", &[]);
    let url = format!("http://127.0.0.1:{}/healthz", node.port);
    let flags =
        ["--min-pool", "0,5", "--burst", "10", "--idle", "700ms", "--idle-timeout", "300ms", "--bursts", "3"];
    let ended = churn(&url, &flags);
    ended.expect_code(0);
    let result = ended.result();
    let churn = seen(&result);
    assert_eq!(churn.cells.len(), 1, "it knows no minimum");
    ended.expect_words(&["keeps no minimum: --min-pool was not applied"]);
    let cell = &churn.cells[0];
    all_answered(cell, 3, 10);
    assert_eq!(cell.idle_connections, Some(0), "{cell:?}");
    assert!(cell.created_in_cycles >= 2 && cell.closed > 0, "{cell:?}");
    assert!(cell.wait.is_none());
    let churning = result.limits.iter().find(|f| f.id == "pool.churn").expect("it is judged");
    assert_eq!(churning.status, Status::Near, "{churning:?}");
}

#[test]
fn what_cannot_be_run_is_refused_at_once_with_what_to_do() {
    let cases: [(&[&str], i32, &str); 4] = [
        (
            &["redis://127.0.0.1:6379", "--min-pool", "0,30", "--max-pool", "10,40"],
            2,
            "--min-pool 30 is more than --max-pool 10",
        ),
        (&["mqtt://127.0.0.1:1883"], 2, "no pool is known for mqtt://"),
        (&["redis://8.8.8.8:6379"], 1, "--allow-public 8.8.8.8"),
        (&["redis://127.0.0.1:1"], 1, "refused"),
    ];
    for (words, code, says) in cases {
        let ended = churn(words[0], &words[1..]);
        ended.expect_code(code);
        ended.expect_words(&[says]);
        assert!(ended.seconds < 10.0, "{}", ended.said());
    }
}

#[test]
fn an_interrupted_grid_tells_the_cells_that_it_has() {
    let node = Node::start("http", &[]);
    let url = format!("http://127.0.0.1:{}/healthz", node.port);
    let directory = directory();
    let file = directory.path().join("result.json").display().to_string();
    let words = [
        "churn",
        &url,
        "--idle",
        "300ms",
        "--bursts",
        "2",
        "--network-delay",
        "0s,1ms,2ms,3ms,4ms,5ms",
        "--json",
        &file,
    ];
    let mut going = start_in(directory, &words);
    wait_until("a cell is over", SOON, || going.stderr().contains("connections made").then_some(()));
    going.running.signal(Signal::Interrupt).expect("it is there");
    let ended = going.finish();
    ended.expect_code(130);
    let result = ended.result();
    let cells = seen(&result).cells.len();
    assert!(result.interrupted && (1..6).contains(&cells), "{cells}");
    assert!(ended.seconds < 20.0 && result.seconds < 20.0, "{}", ended.said());
}

//! Are pgbench's scripts run as pgbench runs them, is each run counted once, and is it told when one cannot be run?

use std::process::Command;

use model::result::RunResult;

use crate::harness::{Stranger, directory, run, tool};
use crate::sweep::{SHORT, points, sweep};

fn url(server: &Stranger) -> String {
    format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", server.port)
}

/// What psql prints for a statement, its columns separated by bars.
fn ask(server: &Stranger, sql: &str) -> String {
    let port = server.port.to_string();
    let said = Command::new("psql")
        .env("PGPASSWORD", "plimsoll")
        .args([
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "plimsoll",
            "-c",
            sql,
            "plimsoll",
        ])
        .output()
        .expect("psql is there");
    assert!(said.status.success(), "{sql}: {}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// Operations answered in the whole run: all that clients did, be it while they warmed up, and the one with which the
/// first connection shows that it can be done.
fn answered(result: &RunResult) -> u64 {
    1 + result.series.iter().map(|moment| moment.messages_answered).sum::<u64>()
}

fn init(url: &str, flags: &[&str]) {
    let ended = run(&[&["sweep", url, "--init"], flags].concat());
    ended.expect_code(0);
}

#[test]
fn the_tables_of_init_are_those_of_pgbench() {
    let Some(server) = Stranger::start_with("postgres", &[("SSL", "on")]) else { return };
    let url = url(&server);
    let counts = "SELECT (SELECT count(*) FROM pgbench_branches), (SELECT count(*) FROM pgbench_tellers), \
                  (SELECT count(*) FROM pgbench_accounts), (SELECT count(*) FROM pgbench_history), \
                  (SELECT max(bid) FROM pgbench_accounts), (SELECT min(aid) FROM pgbench_accounts WHERE bid = 2)";
    // columns with their types, and what the primary keys are
    let shape = "SELECT string_agg(c.relname || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) \
                 || ' ' || a.attnotnull, ', ' ORDER BY c.relname, a.attnum) FROM pg_class c \
                 JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname LIKE 'pgbench%' AND attnum > 0";
    let port = server.port.to_string();
    let pgbench = "pgbench -i -q -s 2 -h 127.0.0.1 -U plimsoll plimsoll";
    let made = tool("sh")
        .env("PGPASSWORD", "plimsoll")
        .env("PGPORT", &port)
        .args(["-euc", &format!("for d in /usr/lib/postgresql/*/bin; do PATH=$PATH:$d; done; {pgbench}")])
        .output()
        .expect("sh is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let theirs = (ask(&server, counts), ask(&server, shape));
    ask(&server, "DROP TABLE pgbench_branches");
    init(&url, &["--scale", "2"]);
    assert_eq!((ask(&server, counts), ask(&server, shape)), theirs);
    assert_eq!(theirs.0, "2|20|200000|0|2|100001");

    // the same over TLS
    init(&format!("{url}?sslmode=require"), &[]);
    assert!(ask(&server, counts).starts_with("1|10|100000|0|"));
    let ended = run(&["sweep", &format!("{url}?sslmode=verify-full"), "--init"]);
    ended.expect_code(1);
    ended.expect_words(&["certificate"]);
    let certificate = server.state().join("server.crt").display().to_string();
    init(&format!("{url}?sslmode=verify-full"), &["--ca", &certificate]);
}

#[test]
fn the_scripts_of_pgbench_run_in_every_mode_and_each_run_is_counted_once() {
    let Some(server) = Stranger::start("postgres") else { return };
    let url = url(&server);
    let ended = run(&["sweep", &url, "--builtin", "tpcb-like", "-c", "1"]);
    ended.expect_code(1);
    ended.expect_words(&["\"pgbench_branches\" does not exist", "--init"]);
    init(&url, &["--scale", "2"]);
    for (builtin, mode) in [
        ("tpcb-like", "simple"),
        ("tpcb", "extended"),
        ("tpcb", "prepared"),
        ("simple-update", "prepared"),
        ("simple", "simple"),
    ] {
        ask(&server, "TRUNCATE pgbench_history");
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers), \
                    (SELECT sum(bbalance) FROM pgbench_branches)";
        let before = ask(&server, sums);
        let ended = sweep(&[&[&*url, "--builtin", builtin, "-M", mode, "-c", "1,5"], &SHORT[..]].concat());
        ended.expect_code(0);
        let result = ended.result();
        let counted = answered(&result);
        assert!(counted > 20 && points(&result).iter().all(|p| p.operations > 0), "{builtin}: {counted}");
        assert_eq!(
            ask(&server, "SELECT count(*) FROM pgbench_history"),
            counted.to_string(),
            "{builtin}, {mode}"
        );
        let delta: i64 = ask(&server, "SELECT sum(delta) FROM pgbench_history").parse().expect("a sum");
        let read = |text: &str| -> Vec<i64> { text.split('|').map(|n| n.parse().expect("a sum")).collect() };
        let (before, after) = (read(&before), read(&ask(&server, sums)));
        let tells = if builtin.starts_with("tpcb") { delta } else { 0 };
        assert_eq!(after, [before[0] + delta, before[1] + tells, before[2] + tells], "{builtin}, {mode}");
        let drawn = "SELECT min(aid) > 0, max(aid) <= 200000, count(DISTINCT bid), count(DISTINCT tid) FROM pgbench_history";
        assert!(ask(&server, drawn).starts_with("t|t|2|"), "values are drawn at the scale of the tables");
    }
    let ended =
        sweep(&[&[&*url, "--builtin", "select-only", "-M", "prepared", "-c", "4"], &SHORT[..]].concat());
    ended.expect_code(0);
    assert!(answered(&ended.result()) > 100);
}

#[test]
fn scripts_with_conditions_are_drawn_by_their_weights() {
    let Some(server) = Stranger::start("postgres") else { return };
    let directory = directory();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name).display().to_string();
        std::fs::write(&path, text).expect("a file");
        path
    };
    ask(&server, "CREATE TABLE seen(client bigint, kind text, n int)");
    let often = file(
        "often.sql",
        "-- counts for each client, and says which are even\n\\if :first\n  \\set n 0\n  \\set first false\n\\endif\n\
         \\set n :n + 1\n\\if :n % 2 = 0\nINSERT INTO seen\n  VALUES (:client_id, 'even;', :n);\n\\else\nBEGIN;\n\
         INSERT INTO seen VALUES (:client_id, :odd::text, :n);\nCOMMIT;\n\\endif\n",
    );
    let seldom = file("seldom.sql", "INSERT INTO seen VALUES (:client_id, 'seldom', NULL)");
    for mode in ["simple", "extended", "prepared"] {
        ask(&server, "TRUNCATE seen");
        let odd = if mode == "simple" { "odd='odd'" } else { "odd=odd" };
        let (often, seldom) = (format!("{often}@3"), format!("{seldom}@1"));
        let words = [
            &url(&server),
            "--script",
            &often,
            "--script",
            &seldom,
            "-M",
            mode,
            "-D",
            odd,
            "-D",
            "first=true",
            "-c",
            "4",
        ];
        let ended = sweep(&[&words, &SHORT[..]].concat());
        ended.expect_code(0);
        let counted = answered(&ended.result());
        let said = ask(
            &server,
            "SELECT count(*), count(DISTINCT client), count(*) FILTER (WHERE kind = 'seldom'), \
             bool_and(kind = 'odd') FILTER (WHERE n % 2 = 1), bool_and(kind = 'even;') FILTER (WHERE n % 2 = 0), \
             count(*) FILTER (WHERE n IS NOT NULL) = count(DISTINCT (client, n)) FILTER (WHERE n IS NOT NULL) FROM seen",
        );
        let said: Vec<&str> = said.split('|').collect();
        // the first connection is another client
        assert_eq!((said[0], said[1]), (&*counted.to_string(), "5"), "{mode}: {said:?}");
        assert_eq!(&said[3..], ["t", "t", "t"], "{mode}: {said:?}");
        let share = said[2].parse::<f64>().expect("a count") / counted as f64;
        let error = 5.0 * (0.25 * 0.75 / counted as f64).sqrt();
        assert!((share - 0.25).abs() < error, "{mode}: {share} of {counted}");
    }
}

#[test]
fn what_is_wrong_with_a_workload_is_told_before_anything_is_connected() {
    let directory = directory();
    let path = directory.path().join("wrong.sql").display().to_string();
    std::fs::write(&path, "SELECT 1;\n\\set x 1 +\nSELECT :x\n\\gset\n\\if :nosuch\n\\endif\n")
        .expect("a file");
    // nothing listens there
    let url = "postgres://u@127.0.0.1:1/d";
    for (words, code, said) in [
        (
            &[url, "--script", &path][..],
            2,
            &["wrong.sql, line 2: \\set x: the expression ends", "wrong.sql, line 4: \\gset", "subquery"][..],
        ),
        (&[url, "--script", "/nosuch.sql"], 1, &["cannot read /nosuch.sql"]),
        (&[url, "--script", "a@b"], 2, &["a@b@1"]),
        (&[url, "--builtin", "s"], 2, &["simple-update, select-only"]),
        (&[url, "--builtin", "tpcb@0"], 2, &["no script has a weight"]),
        (&[url, "--builtin", "tpcb", "-D", "1=2"], 2, &["NAME=VALUE"]),
        (&[url, "--builtin", "tpcb", "--message", "SELECT 1"], 2, &["cannot be used with"]),
        (&["redis://127.0.0.1:1", "--builtin", "tpcb"], 2, &["for postgres://", "redis"]),
        (&["redis://127.0.0.1:1", "--init"], 2, &["for postgres://"]),
        (&[url, url, "--init"], 2, &["one URL"]),
        (&[url, "--init"], 1, &["127.0.0.1:1", "refused"]),
        (&[url, "--builtin", "tpcb"], 1, &["127.0.0.1:1", "refused"]),
    ] {
        let ended = run(&[&["sweep"], words].concat());
        ended.expect_code(code);
        ended.expect_words(said);
    }
}

#[test]
fn statements_that_a_pooler_loses_end_a_client_with_the_servers_words() {
    let Some(postgres) = Stranger::start("postgres") else { return };
    let port = postgres.port.to_string();
    let settings = [("SERVER_PORT", port.as_str()), ("POOL_SIZE", "2")];
    let Some(pooler) = Stranger::start_with("pgbouncer", &settings) else { return };
    let pooled = url(&pooler);
    init(&pooled, &[]);
    let words = |mode| [&[&*pooled, "--builtin", "select-only", "-M", mode, "-c", "6"], &SHORT[..]].concat();
    sweep(&words("extended")).expect_code(0);
    let ended = sweep(&words("prepared"));
    ended.expect_code(3);
    ended.expect_words(&["prepared statement \"P0\""]);
}

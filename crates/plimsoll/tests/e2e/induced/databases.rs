//! Limits of a database, and of a pooler in front of it.

use std::process::Command;

use model::result::Status;
use model::sweep::Shape;

use super::{apply, finding, named_first, passes};
use crate::harness::{PLIMSOLL, SOON, Stranger, directory, hold, start_command, wait_until};

#[test]
fn sessions_of_postgres_and_the_line_that_allows_more() {
    let Some(server) = Stranger::start_with("postgres", &[("MAX_CONNECTIONS", "60")]) else { return };
    let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", server.port);
    // A session ends a little after its client has gone.
    let rested = || wait_until("its sessions had ended", SOON, || (sessions(&server) <= 1).then_some(()));
    let run = || {
        rested();
        hold(&url, &["-c", "72", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"])
    };
    let named = named_first("server.max-connections", run);
    // it keeps 3 for the superuser
    assert_eq!(named.ceiling_connections, Some(57), "{named:?}");
    // "remaining connection slots are reserved …", or "sorry, too many clients already" if they come faster
    assert!(named.evidence.iter().any(|e| e.contains("\"FATAL 53300: ")), "{named:?}");
    let mut as_superuser = named.clone();
    for line in &mut as_superuser.remedy {
        *line = line.replace("psql ", &superuser(&server));
    }
    apply(&as_superuser, &["PGPASSWORD="]);
    server.restart();
    passes("server.max-connections", &run());
}

/// `psql` with the words that this test adds: who asks, and where.
fn superuser(server: &Stranger) -> String {
    format!("PGPASSWORD=plimsoll psql -XAtq -h 127.0.0.1 -p {} -U postgres ", server.port)
}

/// How many sessions a PostgreSQL has, the one that asks among them.
fn sessions(server: &Stranger) -> u64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let line = format!("{} -c \"{sql}\" postgres", superuser(server));
    let said = Command::new("sh").args(["-euc", &line]).output().expect("sh is there");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.trim().parse().unwrap_or(u64::MAX)
}

#[test]
fn clients_of_pgbouncer_and_the_line_that_allows_more() {
    let Some(postgres) = Stranger::start("postgres") else { return };
    let port = postgres.port.to_string();
    let induced = |most: &str| {
        let settings = [("SERVER_PORT", port.as_str()), ("MAX_CLIENT_CONN", most)];
        let server = Stranger::start_with("pgbouncer", &settings)?;
        let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", server.port);
        Some((server, url))
    };
    let run = |url: &str| hold(url, &["-c", "120", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"]);
    let Some((server, url)) = induced("100") else { return };
    let named = named_first("server.max-connections", || run(&url));
    assert_eq!(named.ceiling_connections, Some(100), "{named:?}");
    assert!(
        named.evidence.iter().any(|e| e.contains("FATAL 08P01: no more connections allowed")),
        "{named:?}"
    );
    drop(server);
    let setting =
        |line: &String| Some(line.strip_prefix("max_client_conn = ")?.split(' ').next()?.to_owned());
    let most = named.remedy.iter().find_map(setting).expect("a line for pgbouncer.ini");
    let Some((_server, url)) = induced(&most) else { return };
    passes("server.max-connections", &run(&url));
}

#[test]
fn clients_that_queue_at_pgbouncer_are_named_where_it_can_be_asked_and_not_guessed_where_not() {
    let Some(postgres) = Stranger::start("postgres") else { return };
    let port = postgres.port.to_string();
    let settings = [("SERVER_PORT", port.as_str()), ("POOL_SIZE", "2")];
    let Some(server) = Stranger::start_with("pgbouncer", &settings) else { return };
    let directory = directory();
    let mut command = Command::new(PLIMSOLL);
    command.arg("sweep").arg(format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", server.port));
    command.args(["--message", "SELECT pg_sleep(0.02)", "-c", "1,2,8,32", "--warm-up", "500ms", "--quiet"]);
    command.args(["--measure", "1500ms", "--json"]).arg(directory.path().join("result.json"));
    let ended = start_command(directory, command).finish();
    ended.expect_code(0);
    let result = ended.result();
    let sweep = result.sweep.as_ref().expect("what was swept");
    assert_eq!(sweep.reading.shape, Some(Shape::Queueing), "{:?}", sweep.reading);
    let peak = sweep.reading.peak.expect("a peak");
    // two connections, each of which takes 20 ms and a little
    assert!((70.0..=100.0).contains(&peak.per_second.value), "{peak:?}");
    let asked = sweep.points.iter().flat_map(|p| &p.servers).any(|view| view.source.contains("SHOW POOLS"));
    let found = finding(&result, "pooler.queue");
    if asked {
        // on a machine that is full with something else, a larger pool may not help
        assert!(matches!(found.status, Status::Hit | Status::Near), "{found:?}");
        assert!(found.summary.contains("clients waited at the pooler for one of 2 connections"), "{found:?}");
        assert!(found.remedy[0].starts_with("default_pool_size = 4 "), "{found:?}");
    } else {
        assert_eq!(found.status, Status::Unknown, "{found:?}");
        assert!(found.summary.contains("SHOW POOLS decides"), "{found:?}");
    }
}

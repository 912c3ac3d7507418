//! Are servers asked for their own view of their connections, is it right, and what is made of it?

use model::RunResult;
use model::observation::ServerView;
use model::result::{Finding, Status};

use crate::harness::{Ended, SOON, Stranger, hold, now, run};

const LOGIN: &str = "plimsoll:plimsoll@127.0.0.1";

fn postgres_url(server: &Stranger) -> String {
    format!("postgres://{LOGIN}:{}/plimsoll", server.port)
}

/// Holds 20 connections in two stages of 10 and 20.
fn twenty(url: &str, more: &[&str]) -> RunResult {
    let flags = ["-c", "20", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"];
    let ended = hold(url, &[&flags[..], more].concat());
    assert_eq!(ended.result().connections.verified, 20, "{}", ended.said());
    ended.result()
}

/// The one view at each stage.
fn at_stages(result: &RunResult) -> Vec<&ServerView> {
    let one = |views: &[ServerView]| assert_eq!(views.len(), 1, "{views:?}, {:?}", result.warnings);
    one(&result.before.servers);
    one(&result.after.servers);
    result.stages.iter().inspect(|stage| one(&stage.servers)).map(|stage| &stage.servers[0]).collect()
}

fn finding(result: &RunResult) -> &Finding {
    result.limits.iter().find(|f| f.id == "server.max-connections").expect("it is on the ladder")
}

/// What is warned of that has to do with views.
fn warned(result: &RunResult, of: &str) -> Vec<String> {
    result.warnings.iter().filter(|warning| warning.contains(of)).cloned().collect()
}

#[test]
fn postgres_counts_what_is_held_and_tells_its_limit_before() {
    let settings = [("MAX_CONNECTIONS", "60"), ("SSL", "on")];
    let Some(server) = Stranger::start_with("postgres", &settings) else { return };
    let url = postgres_url(&server);
    let result = twenty(&url, &[]);
    let views = at_stages(&result);
    let counted: Vec<_> = views.iter().map(|view| view.connections).collect();
    assert_eq!(counted, [Some(10), Some(20), Some(20)], "{views:?}");
    let last = views[2];
    assert_eq!((last.limit, last.reserved, last.internal), (Some(60), Some(3), Some(0)));
    assert_eq!(last.source, format!("pg_stat_activity at 127.0.0.1:{}", server.port));
    let found = finding(&result);
    // Sessions that ended just before the run may still be counted in its first view.
    let ceiling = found.ceiling_connections.expect("its settings are known");
    assert!((55..=57).contains(&ceiling), "{found:?}");
    assert_eq!(found.status, Status::Clear, "{found:?}");
    assert!(found.evidence.iter().any(|e| e.contains("counted 20 connections")), "{found:?}");

    // the same over TLS, and with no connection at all
    let encrypted = twenty(&format!("{url}?sslmode=require"), &[]);
    assert_eq!(at_stages(&encrypted)[2].connections, Some(20));
    let doctor = run(&["doctor", "-c", "100", &url]);
    doctor.expect_code(3);
    doctor.expect_words(&[
        "of 100 asked",
        "max_connections 60, 3 of them reserved",
        "SET max_connections = 120",
    ]);
    let wrong = run(&["doctor", "-c", "10", &url.replace(":plimsoll@", ":wrong@")]);
    wrong.expect_code(0);
    wrong.expect_words(&["own count is unknown", "password authentication failed", "--views"]);
}

#[test]
fn what_postgres_hides_from_a_login_is_unknown_and_not_zero() {
    let Some(server) = Stranger::start("postgres") else { return };
    // Somebody else's session, which an ordinary role may not look into.
    let superuser = format!("postgres://postgres:plimsoll@127.0.0.1:{}/postgres", server.port);
    let other = crate::harness::start_hold(&superuser, &["-c", "3", "--stages", "1", "--hold", "60s"]);
    crate::harness::wait_until("they are held", SOON, || other.stderr().contains("stage of ").then_some(()));
    let result = twenty(&postgres_url(&server), &[]);
    assert!(result.stages.iter().all(|stage| stage.servers.is_empty()), "{:?}", result.stages);
    let told = warned(&result, "pg_stat_activity");
    assert!(!told.is_empty() && told.iter().all(|t| t.contains("GRANT pg_read_all_stats TO")), "{told:?}");
    // who may see all, sees all
    let result = twenty(&postgres_url(&server), &["--views", &superuser]);
    assert_eq!(at_stages(&result)[1].connections, Some(23));
}

#[test]
fn a_full_postgres_is_told_with_its_own_count() {
    let Some(server) = Stranger::start_with("postgres", &[("MAX_CONNECTIONS", "40")]) else { return };
    let superuser = format!("postgres://postgres:plimsoll@127.0.0.1:{}/postgres", server.port);
    let flags = ["-c", "60", "--stages", "3", "--hold", "1s", "--views", &superuser];
    let ended = hold(&postgres_url(&server), &flags);
    ended.expect_code(3);
    let result = ended.result();
    let found = finding(&result);
    assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(37)), "{found:?}");
    let told =
        |e: &String| e.contains("counted 37 connections") && e.contains("max_connections 40, 3 of them");
    assert!(found.evidence.iter().any(told), "{found:?}");
}

#[test]
fn pgbouncer_tells_its_clients_to_those_whom_it_lets() {
    let Some(postgres) = Stranger::start("postgres") else { return };
    let port = postgres.port.to_string();
    let pooler = |stats_users: &str| {
        let settings = [
            ("SERVER_PORT", port.as_str()),
            ("POOL_SIZE", "5"),
            ("MAX_CLIENT_CONN", "50"),
            ("STATS_USERS", stats_users),
        ];
        Stranger::start_with("pgbouncer", &settings)
    };
    let Some(server) = pooler("plimsoll") else { return };
    let result = twenty(&postgres_url(&server), &[]);
    let last = at_stages(&result)[2];
    assert_eq!(last.source, format!("SHOW POOLS at 127.0.0.1:{}", server.port));
    assert_eq!((last.connections, last.limit, last.pool_limit), (Some(20), Some(50), Some(5)), "{last:?}");
    assert!(last.server_connections.is_some_and(|n| (1..=5).contains(&n)), "{last:?}");
    assert_eq!(finding(&result).ceiling_connections, Some(50), "{:?}", finding(&result));
    drop(server);

    let Some(server) = pooler("") else { return };
    let result = twenty(&postgres_url(&server), &[]);
    assert!(result.stages.iter().all(|stage| stage.servers.is_empty()), "{:?}", result.stages);
    let told = warned(&result, "SHOW POOLS");
    assert!(told.len() == 1 && told[0].contains("stats_users = plimsoll"), "{told:?}");
}

#[test]
fn redis_tells_its_clients() {
    let settings = [("PASSWORD", "swordfish"), ("MAXCLIENTS", "1000")];
    let Some(server) = Stranger::start_with("redis", &settings) else { return };
    let result = twenty(&format!("redis://:swordfish@127.0.0.1:{}", server.port), &[]);
    let views = at_stages(&result);
    assert_eq!((views[0].connections, views[2].connections), (Some(10), Some(20)), "{views:?}");
    assert_eq!((views[2].limit, finding(&result).ceiling_connections), (Some(1_000), Some(1_000)));
    assert!(views[2].source.starts_with("INFO at 127.0.0.1:"), "{views:?}");
}

#[test]
fn who_cannot_tell_is_not_asked() {
    let refused = |ended: &Ended| {
        ended.expect_code(2);
        ended.expect_words(&["--views", "tells nothing of its connections"]);
    };
    refused(&run(&["hold", "tcp://127.0.0.1:1", "-c", "1", "--views", "tcp://127.0.0.1:2"]));
    // A server that is gone costs a run nothing but the view.
    let Some(server) = Stranger::start("redis") else { return };
    let began = now();
    let gone = format!("redis://127.0.0.1:{}", crate::harness::port());
    let result = twenty(&format!("redis://127.0.0.1:{}", server.port), &["--views", &gone]);
    assert!(result.after.servers.is_empty() && now() - began < 60.0);
    assert_eq!(warned(&result, "INFO at").len(), 1, "{:?}", result.warnings);
}

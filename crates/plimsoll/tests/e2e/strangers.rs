//! Does it hold on servers that we did not write, and does it find out what they cost and which processes they are?

use crate::harness::{Stranger, hold, port, trusted};
use crate::sweep::{points, sweep};
use model::result::Status;
use model::{FailureKind, RunResult};

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

/// Lets four clients do real work on it, which each of them must get done.
fn works(url: &str, more: &[&str]) {
    let ended = sweep(&[&[url, "-c", "4", "--warm-up", "100ms", "--measure", "400ms"], more].concat());
    // Four clients that never rest may fill the generator's CPU as well as the server's.
    assert!([0, 4].contains(&ended.code), "{url}: {}", ended.said());
    let result = ended.result();
    let [point] = points(&result) else { panic!("{}", ended.said()) };
    assert_eq!((point.connected, point.served, point.lost), (4, 4, 0), "{url}: {point:?}");
    assert!(point.operations >= 4 && result.connections.failed_total() == 0, "{url}: {point:?}");
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
    works(&format!("http://127.0.0.1:{}/", nginx.port), &[]);
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

/// Each connection logged in or greeted, in the phases that its protocol has.
fn phases(result: &RunResult) -> Vec<&str> {
    result.establish.phases.keys().map(String::as_str).collect()
}

#[test]
fn two_thousand_clients_are_held_on_redis() {
    let Some(redis) = Stranger::start("redis") else { return };
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let result = holds(&url, 2_000, &[]);
    assert_eq!(processes(&result), [("redis-server", "listens")]);
    assert_eq!(phases(&result), ["ready", "tcp", "upgrade"]);
    works(&url, &["--message", "SET greeting hello\nGET greeting"]);
}

#[test]
fn two_thousand_clients_are_held_on_nats() {
    let Some(nats) = Stranger::start("nats") else { return };
    let url = format!("nats://127.0.0.1:{}", nats.port);
    let result = holds(&url, 2_000, &[]);
    assert_eq!(processes(&result), [("nats-server", "listens")]);
    assert_eq!(phases(&result), ["ready", "tcp", "upgrade"]);
    works(&url, &["--message", "hello"]);
}

#[test]
fn clients_of_nats_are_held_in_tls_that_it_requires_or_offers() {
    let flags = ["-c", "200", "--stages", "2", "--hold", "1s", "--heartbeat", "500ms"];
    for (tls, query) in [("required", ""), ("allowed", "?tls=true")] {
        let Some(nats) = Stranger::start_with("nats", &[("TLS", tls)]) else { return };
        let url = format!("nats://127.0.0.1:{}{query}", nats.port);
        let ca = nats.state().join("server.crt").display().to_string();
        let ended = trusted(|| hold(&url, &[&flags[..], &["--ca", &ca]].concat()));
        ended.expect_code(0);
        assert_eq!(phases(&ended.result()), ["ready", "tcp", "tls", "upgrade"]);
        // without that, its certificate is signed by nobody that is trusted here
        let kinds = |more: &[&str]| hold(&url, &[&flags[..], more].concat()).result().connections.failed;
        assert_eq!(kinds(&[]).into_keys().collect::<Vec<_>>(), [FailureKind::TlsCertificate], "{tls}");
        assert!(kinds(&["--insecure"]).is_empty(), "{tls}");
    }
}

#[test]
fn two_thousand_sessions_are_held_on_mosquitto() {
    for version in ["3.1.1", "5"] {
        // each version on a broker of its own: one that has held as many before has their memory still
        let Some(mosquitto) = Stranger::start("mosquitto") else { return };
        let url = format!("mqtt://127.0.0.1:{}?version={version}", mosquitto.port);
        let result = holds(&url, 2_000, &[]);
        assert_eq!(processes(&result), [("mosquitto", "listens")]);
        assert_eq!(phases(&result), ["ready", "tcp", "upgrade"]);
        works(&format!("{url}&qos=1"), &[]);
    }
}

/// Settings with which a server asks for a password.
const LOGIN: [(&str, &str); 2] = [("USER_NAME", "default"), ("PASSWORD", "swordfish")];

/// A wrong password is told as what it is, soon, and shown nowhere; the right one logs in.
fn asks_for_a_password(server: &Stranger, scheme: &str) {
    let hold = |password: &str| {
        let url = format!("{scheme}://default:{password}@127.0.0.1:{}", server.port);
        let ended = hold(&url, &["-c", "100", "--stages", "1", "--hold", "1s", "--heartbeat", "1s"]);
        let document = std::fs::read_to_string(ended.file()).expect("a result");
        let all = format!("{}{document}", ended.said());
        assert!(!all.contains(password) && all.contains("default:***@"), "{scheme}: {all}");
        ended
    };
    let refused = hold("hunter2");
    refused.expect_code(3);
    refused.expect_words(&["not let in by the server's login"]);
    assert!(refused.seconds < 60.0, "{}", refused.said());
    let failed = refused.result().connections.failed;
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&FailureKind::LoginRefused], "{scheme}: {failed:?}");
    let welcome = hold("swordfish");
    welcome.expect_code(0);
    assert!(phases(&welcome.result()).contains(&"auth"), "{scheme}");
}

#[test]
fn a_wrong_password_is_a_failure_of_its_own() {
    for (name, scheme) in [("redis", "redis"), ("nats", "nats"), ("mosquitto", "mqtt")] {
        let Some(server) = Stranger::start_with(name, &LOGIN) else { continue };
        asks_for_a_password(&server, scheme);
    }
}

#[test]
fn five_hundred_clients_are_held_on_ferretdb() {
    let tls_port = port();
    let tls = tls_port.to_string();
    let settings = [("USER_NAME", "ann"), ("PASSWORD", "sword,fi=sh"), ("TLS_PORT", tls.as_str())];
    let Some(ferretdb) = Stranger::start_with("ferretdb", &settings) else { return };
    let url = format!("mongodb://ann:sword%2Cfi=sh@127.0.0.1:{}/shop?authSource=admin", ferretdb.port);
    let flags = ["-c", "500", "--stages", "5", "--hold", "3s", "--heartbeat", "1s"];
    let ended = trusted(|| hold(&url, &flags));
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!((result.connections.verified, result.connections.failed_total()), (500, 0));
    assert!(result.heartbeat.answered >= 1_000 && result.heartbeat.missed == 0, "{:?}", result.heartbeat);
    let cost = result.cost.target.user_bytes_per_connection.expect("its memory is seen");
    assert!((5e3..500e3).contains(&cost.value), "a goroutine and its buffers for each: {cost:?}");
    assert_eq!(processes(&result), [("ferretdb", "listens")]);
    assert_eq!(phases(&result), ["auth", "ready", "tcp", "upgrade"]);
    works(&url, &["--message", r#"{"find": "orders", "filter": {"n": 1}, "limit": 1}"#]);

    let few = ["-c", "50", "--stages", "1", "--hold", "1s", "--heartbeat", "500ms"];
    let refused = hold(&url.replace("sword", "plough"), &few);
    refused.expect_code(3);
    let words = &refused.result().connections.failed_example[&FailureKind::LoginRefused];
    for said in ["AuthenticationFailed", "authSource=admin", "check the user and the password in the URL"] {
        assert!(words.contains(said), "{words}");
    }
    assert!(refused.seconds < 60.0 && !refused.said().contains("plough"), "{}", refused.said());
    let failed = refused.result().connections.failed;
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&FailureKind::LoginRefused], "{failed:?}");

    let ca = ferretdb.state().join("server.crt").display().to_string();
    let encrypted = format!("mongodb://ann:sword%2Cfi=sh@127.0.0.1:{tls_port}/?tls=true");
    let ended = trusted(|| hold(&encrypted, &[&few[..], &["--ca", &ca]].concat()));
    ended.expect_code(0);
    assert!(phases(&ended.result()).contains(&"tls"));
}

#[test]
fn a_redis_that_is_full_is_quoted() {
    let Some(redis) = Stranger::start_with("redis", &[("MAXCLIENTS", "97")]) else { return };
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let ended = hold(&url, &["-c", "149", "--stages", "1", "--hold", "1s"]);
    ended.expect_code(3);
    let result = ended.result();
    assert_eq!((result.connections.held, result.connections.failed_total()), (97, 52));
    ended.expect_words(&["max number of clients reached", "server.max-connections"]);
}

#[test]
fn five_hundred_sessions_are_held_on_postgres() {
    let Some(postgres) = Stranger::start_with("postgres", &[("MAX_CONNECTIONS", "520")]) else { return };
    let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", postgres.port);
    let ended = trusted(|| hold(&url, &["-c", "500", "--stages", "5", "--hold", "3s", "--heartbeat", "2s"]));
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!((result.connections.verified, result.connections.failed_total()), (500, 0));
    assert!(result.heartbeat.answered > 0 && result.heartbeat.missed == 0, "{:?}", result.heartbeat);
    let cost = result.cost.target.user_bytes_per_connection.expect("its memory is seen");
    assert!((300e3..20e6).contains(&cost.value), "a process for each connection: {cost:?}");
    let threads = result.cost.target.threads_per_connection.expect("its processes are seen");
    assert!((threads.value - 1.0).abs() < 0.01, "{threads:?}");
    assert!(result.establish.phases.contains_key("auth"), "{:?}", result.establish.phases);
    // the password is in nothing that was written
    let written = std::fs::read_to_string(ended.file()).expect("the result");
    assert!(written.contains("postgres://plimsoll:***@127.0.0.1"), "the target is shown");
    assert!(!format!("{written}{}", ended.said()).contains("plimsoll:plimsoll"), "the password is not");
}

#[test]
fn sessions_are_held_in_tls_and_by_md5() {
    let settings = [("SSL", "on"), ("AUTH", "md5")];
    let Some(postgres) = Stranger::start_with("postgres", &settings) else { return };
    let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", postgres.port);
    let flags = ["-c", "100", "--stages", "2", "--hold", "1s", "--heartbeat", "500ms"];
    let ended = trusted(|| hold(&format!("{url}?sslmode=require"), &flags));
    ended.expect_code(0);
    assert!(ended.result().establish.phases.contains_key("tls"));
    let ca = postgres.state().join("server.crt").display().to_string();
    let checked = format!("{url}?sslmode=verify-full");
    trusted(|| hold(&checked, &[&flags[..], &["--ca", &ca]].concat())).expect_code(0);
    // without that, its certificate is signed by nobody that is trusted here
    let kinds = |url: &str| hold(url, &flags).result().connections.failed.into_keys().collect::<Vec<_>>();
    assert_eq!(kinds(&checked), [FailureKind::TlsCertificate]);
    assert_eq!(kinds(&url.replace(":plimsoll@", ":wrong@")), [FailureKind::LoginRefused]);
}

#[test]
fn a_thousand_sessions_are_held_through_pgbouncer() {
    let Some(postgres) = Stranger::start("postgres") else { return };
    let port = postgres.port.to_string();
    // what it opens to PostgreSQL are descriptors, too, but few
    let settings = [("SERVER_PORT", port.as_str()), ("POOL_SIZE", "5")];
    let Some(pgbouncer) = Stranger::start_with("pgbouncer", &settings) else { return };
    let url = format!("postgres://plimsoll:plimsoll@127.0.0.1:{}/plimsoll", pgbouncer.port);
    let result = holds(&url, 1_000, &[]);
    assert_eq!(processes(&result), [("pgbouncer", "listens")]);
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

#[test]
fn five_hundred_clients_are_held_on_ignite() {
    // the node takes ten seconds and more to start: what else is asked of it, is asked of the same
    let Some(ignite) = Stranger::start_with("ignite", &LOGIN) else { return };
    let url = format!("ignite://default:swordfish@127.0.0.1:{}", ignite.port);
    let ended = trusted(|| hold(&url, &["-c", "500", "--stages", "5", "--hold", "3s", "--heartbeat", "1s"]));
    ended.expect_code(0);
    let result = ended.result();
    assert_eq!((result.connections.verified, result.connections.failed_total()), (500, 0));
    assert!(result.heartbeat.answered > 0 && result.heartbeat.missed == 0, "{:?}", result.heartbeat);
    let cost = result.cost.target.user_bytes_per_connection.expect("its memory is seen");
    assert!(cost.value < 1e6, "{cost:?}");
    let descriptors = result.cost.target.descriptors_per_connection.expect("its descriptors are seen");
    assert!((descriptors.value - 1.0).abs() < 0.01, "{descriptors:?}");
    assert_eq!(processes(&result), [("java", "listens")]);
    works(&url, &["--message", "SELECT 1 + 1"]);
    asks_for_a_password(&ignite, "ignite");
}

#[test]
fn an_ignite_node_without_descriptors_is_told_by_what_it_never_answers() {
    let Some(ignite) = Stranger::start_with("ignite", &[("NOFILE", "1000")]) else { return };
    let url = format!("ignite://127.0.0.1:{}", ignite.port);
    let ended = hold(&url, &["-c", "780", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"]);
    ended.expect_code(3);
    let result = ended.result();
    assert_eq!(result.verdict.first_limit.as_deref(), Some("server.nofile"), "{}", result.verdict.sentence);
    // the kernel has room in its queue for all who are too many
    let failed = &result.connections.failed;
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&FailureKind::ReadyTimeout], "{failed:?}");
    let nofile = result.limits.iter().find(|f| f.id == "server.nofile").expect("it is on the ladder");
    let told = format!(
        "{} of them were accepted by the kernel, and never answered",
        result.connections.failed_total()
    );
    assert!(nofile.evidence.iter().any(|line| line.starts_with(&told)), "{:?}", nofile.evidence);
}

#[test]
fn five_hundred_connections_are_held_on_grpc_go() {
    let Some(go) = Stranger::start("grpc-go") else { return };
    let url = format!("grpc://127.0.0.1:{}", go.port);
    let ended = trusted(|| hold(&url, &["-c", "500", "--stages", "5", "--hold", "3s", "--heartbeat", "1s"]));
    ended.expect_code(0);
    let result = ended.result();
    let seen = &result.connections;
    assert_eq!((seen.held, seen.verified, seen.failed_total()), (500, 500, 0), "{:?}", seen.failed);
    assert!(result.heartbeat.answered > 0 && result.heartbeat.missed == 0, "{:?}", result.heartbeat);
    assert_eq!(processes(&result), [("grpc-go", "listens")]);
    assert_eq!(phases(&result), ["ready", "tcp", "upgrade"]);
    let cost = result.cost.target.user_bytes_per_connection.expect("its memory is seen");
    assert!((10e3..1e6).contains(&cost.value), "goroutines and buffers for each connection: {cost:?}");
}

/// Calls of each kind, by what the server tells of itself; without its token, nobody is let in.
#[test]
fn a_service_that_describes_itself_is_called() {
    let Some(go) = Stranger::start_with("grpc-go", &[("TOKEN", "swordfish")]) else { return };
    let url = format!("grpc://127.0.0.1:{}", go.port);
    let calls = |method: &str, more: &[&str]| {
        let method = format!("grpc.testing.TestService/{method}");
        let call = ["--call", &method, "--data", r#"{"payload": {"body": "aGVsbG8="}}"#];
        let flags = ["-c", "50", "--stages", "1", "--hold", "1s", "--heartbeat", "1s"];
        hold(&url, &[&flags[..], &call, more].concat())
    };
    calls("StreamingOutputCall", &[]).expect_code(0);
    works(
        &url,
        &["--call", "grpc.testing.TestService/UnaryCall", "--metadata", "authorization=Bearer swordfish"],
    );
    calls("FullDuplexCall", &["--streams", "3"]).expect_code(0);
    let ended = calls("UnaryCall", &["--metadata", "authorization=Bearer swordfish"]);
    ended.expect_code(0);
    let written = std::fs::read_to_string(ended.file()).expect("the result");
    assert!(!format!("{written}{}", ended.said()).contains("swordfish"), "the token is shown nowhere");
    let refused = calls("UnaryCall", &[]);
    refused.expect_code(3);
    assert_eq!(
        refused.result().connections.failed.into_keys().collect::<Vec<_>>(),
        [FailureKind::LoginRefused]
    );
    for (method, code, words) in [
        ("EmptyCall", 2, "grpc.testing.Empty has no field \"payload\""),
        ("CacheableUnaryCall", 3, "UNIMPLEMENTED"),
        ("Shout", 2, "it has EmptyCall, UnaryCall"),
        ("StreamingInputCall", 2, "answered only when its stream ends"),
    ] {
        let ended = calls(method, &[]);
        ended.expect_code(code);
        let failed =
            if code == 3 { format!("{:?}", ended.result().connections.failed_example) } else { ended.said() };
        assert!(failed.contains(words), "{method}: {failed}");
    }
}

/// grpc-go allows one ping in five minutes unless it is told otherwise; calls do not count.
#[test]
fn a_server_that_counts_pings_is_quoted() {
    let Some(go) = Stranger::start_with("grpc-go", &[("MIN_TIME", "off")]) else { return };
    let url = format!("grpc://127.0.0.1:{}", go.port);
    let flags = ["-c", "20", "--stages", "5", "--hold", "2s"];
    let ended = hold(&url, &[&flags[..], &["--heartbeat", "500ms"]].concat());
    ended.expect_code(3);
    let result = ended.result();
    assert_eq!(result.connections.failed.keys().collect::<Vec<_>>(), [&FailureKind::Protocol]);
    let words = &result.connections.failed_example[&FailureKind::Protocol];
    assert!(words.contains("\"too_many_pings\"") && words.contains("--heartbeat off"), "{words}");
    let call = ["--heartbeat", "off", "--call", "grpc.testing.TestService/UnaryCall"];
    hold(&url, &[&flags[..], &call].concat()).expect_code(0);
}

//! Is each limit named first, every time, when it is induced for real? And do the lines that lift it lift it?

use std::fs;
use std::process::Command;

use crate::harness::{
    Ended, Node, PLIMSOLL, SOON, Stranger, alone, directory, hold, say, start_command, wait_until,
};
use model::RunResult;
use model::result::{Finding, Status};
use testkit::cgroup::Cgroup;

/// How often each limit is induced. Only the last stage of a ramp goes beyond it: each further one would wait out the
/// patience once more.
const REPEATS: usize = 3;

fn finding<'a>(result: &'a RunResult, id: &str) -> &'a Finding {
    result.limits.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("{id} is not on the ladder"))
}

/// Runs it as often as that; each time this limit is named first, with evidence and a remedy. Gives the last.
fn named_first(id: &str, mut run: impl FnMut() -> Ended) -> Finding {
    let mut last = None;
    for repeat in 1..=REPEATS {
        let ended = run();
        let result = ended.result();
        let said = &result.verdict.sentence;
        assert_eq!(result.verdict.first_limit.as_deref(), Some(id), "in repeat {repeat}: {said}");
        let named = finding(&result, id);
        assert_eq!(named.status, Status::Hit, "in repeat {repeat}: {named:?}");
        assert!(!named.evidence.is_empty() && !named.remedy.is_empty(), "in repeat {repeat}: {named:?}");
        last = Some(named.clone());
    }
    last.expect("it was repeated")
}

/// Runs the lines of a remedy that are commands, exactly as they were printed.
fn apply(finding: &Finding, commands: &[&str]) {
    let is_command = |line: &&String| commands.iter().any(|c| line.starts_with(c));
    let lines: Vec<&String> = finding.remedy.iter().filter(is_command).collect();
    assert!(!lines.is_empty(), "no line of the remedy can be run: {:?}", finding.remedy);
    for line in lines {
        let done = Command::new("sh").args(["-euc", line]).output().expect("sh is there");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// The run passes: everything is held, and this limit is not met any more.
fn passes(id: &str, ended: &Ended) {
    ended.expect_code(0);
    let result = ended.result();
    assert!(result.verdict.held, "{}", result.verdict.sentence);
    assert_ne!(finding(&result, id).status, Status::Hit, "{}", result.verdict.sentence);
}

/// Runs a hold in a network namespace of its own, after some lines of shell have prepared it. `None`: this machine
/// has none.
fn hold_in_namespace(prepare: &str, words: &[&str]) -> Option<Ended> {
    let possible = Command::new("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    if !possible.is_ok_and(|done| done.status.success()) {
        say("skipped: no network namespace can be made here");
        return None;
    }
    let directory = directory();
    let result = directory.path().join("result.json");
    let script = format!("ip link set lo up\n{prepare}\nexec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-euc", &script, PLIMSOLL, "hold"]).args(words);
    command.arg("--quiet").arg("--json").arg(result);
    Some(start_command(directory, command).finish())
}

#[test]
fn descriptors_of_a_server_and_the_line_that_raises_them() {
    let Some(server) = Stranger::start_with("asyncio-ws", &[("NOFILE", "300")]) else { return };
    let url = format!("ws://127.0.0.1:{}/", server.port);
    let run = || hold(&url, &["-c", "360", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"]);
    let named = named_first("server.nofile", run);
    apply(&named, &["prlimit", "for pid"]);
    passes("server.nofile", &run());
}

#[test]
fn ports_of_a_source_in_a_namespace() {
    let range = "echo '40000 40199' > /proc/sys/net/ipv4/ip_local_port_range";
    let words = ["tcp://127.0.0.1:7000", "--serve", "-c", "300", "--stages", "3", "--hold", "1s"];
    let one = [&words[..], &["--source", "127.0.0.1"]].concat();
    let Some(ended) = hold_in_namespace(range, &one) else { return };
    // the plan sees it before the first socket is opened
    ended.expect_words(&["client.ephemeral-ports", "need 2 source addresses", "--source"]);
    assert_ne!(ended.code, 0, "{}", ended.said());
    let many = [&words[..], &["--source", "127.0.0.1,127.0.0.2"]].concat();
    passes("client.ephemeral-ports", &hold_in_namespace(range, &many).expect("it was possible before"));
}

#[test]
fn clients_of_redis_and_the_line_that_allows_more() {
    let Some(server) = Stranger::start_with("redis", &[("MAXCLIENTS", "200")]) else { return };
    let url = format!("tcp://127.0.0.1:{}", server.port);
    let run = || {
        let ping = ["--send", "PING\\r\\n", "--expect", "+PONG"];
        let size = ["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"];
        hold(&url, &[&size[..], &ping].concat())
    };
    let named = named_first("server.max-connections", run);
    assert_eq!(named.ceiling_connections, Some(200), "{named:?}");
    assert!(named.evidence.iter().any(|e| e.contains("max number of clients reached")), "{named:?}");
    let mut on_its_port = named.clone();
    for line in &mut on_its_port.remedy {
        // the only word that this test adds: its server does not listen on the port that redis-cli takes by default
        *line = line.replace("redis-cli ", &format!("redis-cli -p {} ", server.port));
    }
    apply(&on_its_port, &["redis-cli"]);
    passes("server.max-connections", &run());
}

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
fn connections_of_a_worker_of_nginx() {
    let settings = [("WORKERS", "1"), ("WORKER_CONNECTIONS", "200")];
    let Some(server) = Stranger::start_with("nginx", &settings) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    // It makes room by closing idle ones: that takes several stages to be told from a timeout.
    let named = named_first("server.max-connections", || {
        hold(&url, &["-c", "400", "--stages", "8", "--hold", "1s", "--heartbeat", "1s"])
    });
    assert!(named.remedy.iter().any(|line| line.contains("worker_connections 480;")), "{named:?}");
}

#[test]
fn connections_that_haproxy_takes() {
    let Some(server) = Stranger::start_with("haproxy", &[("MAXCONN", "200")]) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let named = named_first("server.max-connections", || {
        hold(&url, &["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"])
    });
    assert_eq!(named.ceiling_connections, Some(200), "{named:?}");
    assert!(named.remedy.iter().any(|line| line.starts_with("maxconn 290")), "{named:?}");
}

#[test]
fn entries_of_the_connection_tracking_table() {
    let _alone = alone();
    /// The table's size is the machine's, even in a namespace: it is put back whatever happens.
    struct Most(String);
    impl Drop for Most {
        fn drop(&mut self) {
            let _ = fs::write(MOST, &self.0);
        }
    }
    const MOST: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
    let Ok(before) = fs::read_to_string(MOST) else { return say("skipped: no connection tracking here") };
    let before = Most(before);
    if fs::write(MOST, "300").is_err() || Command::new("nft").arg("--version").output().is_err() {
        return say("skipped: connection tracking cannot be set up here");
    }
    let track = "nft add table ip t\nnft 'add chain ip t c { type filter hook input priority 0; }'\n\
                 nft add rule ip t c ct state established accept";
    let size = ["-c", "360", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"];
    let words = [&["tcp://127.0.0.1:7000", "--serve"], &size[..]].concat();
    let Some(first) = hold_in_namespace(track, &words) else { return };
    if finding(&first.result(), "host.conntrack").status == Status::Unknown {
        return say("skipped: nothing is tracked in a namespace here");
    }
    let named =
        named_first("host.conntrack", || hold_in_namespace(track, &words).expect("it was possible before"));
    apply(&named, &["sysctl -w net.netfilter.nf_conntrack_max"]);
    passes("host.conntrack", &hold_in_namespace(track, &words).expect("it was possible before"));
    drop(before);
}

#[test]
fn threads_of_a_server_in_a_control_group() {
    let Some(server) = Stranger::start("threads") else { return };
    let url = format!("tcp://127.0.0.1:{}", server.port);
    let group = match Cgroup::with_task_limit(&format!("plimsoll-induced-{}", std::process::id()), 200) {
        Ok(group) => group,
        Err(why) => return say(&format!("skipped: {why}")),
    };
    let found = hold(&url, &["-c", "1", "--stages", "1", "--hold", "0s"]).result();
    let pid = found.target.processes[0].pid;
    group.add(pid).expect("it can be moved");
    // The threads of the connections before end in their own time.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let rested = || wait_until("its threads had ended", SOON, || (threads() <= 2).then_some(()));
    let run = || {
        rested();
        hold(&url, &["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"])
    };
    let named = named_first("server.threads", run);
    assert!(named.ceiling_connections.is_some_and(|c| c.abs_diff(199) <= 4), "{named:?}");
    apply(&named, &["echo "]);
    passes("server.threads", &run());
}

#[test]
fn an_idle_timeout_and_the_heartbeat_that_avoids_it() {
    let node = Node::start("tcp", &["--idle-timeout", "1500ms"]);
    let words = ["-c", "300", "--stages", "3", "--hold", "4s"];
    named_first("server.idle-timeout", || hold(&node.url(), &[&words[..], &["--heartbeat", "off"]].concat()));
    passes("server.idle-timeout", &hold(&node.url(), &[&words[..], &["--heartbeat", "500ms"]].concat()));
}

#[test]
fn the_keep_alive_timeout_of_nginx() {
    let Some(server) = Stranger::start_with("nginx", &[("KEEPALIVE_TIMEOUT", "2s")]) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let named = named_first("server.idle-timeout", || {
        hold(&url, &["-c", "300", "--stages", "1", "--hold", "5s", "--heartbeat", "off"])
    });
    assert!(named.remedy.iter().any(|line| line.contains("keepalive_timeout")), "{named:?}");
}

#[test]
fn a_node_that_stops_for_a_while() {
    let _alone = alone();
    let node = Node::start("tcp", &[]);
    let pid = node.running.pid();
    named_first("server.stall", || {
        let flags = ["-c", "500", "--stages", "2", "--hold", "7s", "--heartbeat", "500ms"];
        let mut going = crate::harness::start_hold(&node.url(), &flags);
        going.wait_for_stages(2);
        for process in node.processes() {
            crate::harness::signal(process, testkit::limited::Signal::Stop);
        }
        std::thread::sleep(std::time::Duration::from_secs(3));
        for process in node.processes() {
            crate::harness::signal(process, testkit::limited::Signal::Continue);
        }
        assert!(crate::harness::is_alive(pid));
        going.finish()
    });
}

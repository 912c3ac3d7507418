//! On a cluster in which any node takes clients: are the connections between its nodes seen, and counted apart?

use std::process::Command;

use crate::harness::{SOON, Stranger, alone, start, wait_until};

const CLIENTS: u64 = 8;
/// Needs all nodes.
const ALL_NODES: &str = "SELECT sum(abalance) FROM pgbench_accounts WHERE aid <= 100";

/// How many sessions of a node come from other nodes, as psql has it.
fn from_other_nodes(port: u16) -> Option<u64> {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postgres_fdw'";
    let words = ["-XAtq", "-h", "127.0.0.1", "-U", "postgres", "-c", sql, "-p"];
    let said = Command::new("psql").args(words).arg(port.to_string()).arg("postgres").output().ok()?;
    String::from_utf8_lossy(&said.stdout).trim().parse().ok()
}

#[test]
fn each_client_that_needs_all_nodes_keeps_a_connection_between_them() {
    // It takes ports beside its own, and the processors.
    let _alone = alone();
    let settings = [("NODES", "2"), ("SCALE", "1"), ("MAXCONN", "60")];
    let Some(cluster) = Stranger::start_with("elastic-cluster", &settings) else { return };
    let (direct, pooled) = (cluster.port, cluster.port + 1);
    let nodes = [cluster.port + 11, cluster.port + 12];
    let poolers = [cluster.port + 21, cluster.port + 22];
    let url = |port: u16| format!("postgres://bench@127.0.0.1:{port}/bench");
    let result_at = tempfile::tempdir().unwrap();
    let json = result_at.path().join("result.json").display().to_string();
    let clients = CLIENTS.to_string();
    let (direct, pooled) = (url(direct), url(pooled));
    // HAProxy's checks are the superuser's sessions, which another login may not look into.
    let node = |port: &u16| format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let views: Vec<String> = nodes.iter().map(node).chain(poolers.iter().map(|port| url(*port))).collect();
    let mut words = vec!["sweep", &direct, &pooled, "--label", "direct", "--label", "pooled"];
    words.extend(["-c", &clients, "--warm-up", "2s", "--measure", "4s", "--message", ALL_NODES]);
    words.extend(["--process", "postgres,pgbouncer,haproxy", "--quiet", "--json", &json]);
    words.extend(views.iter().flat_map(|view| ["--views", view.as_str()]));
    let going = start(&words);
    // Each client has a session on one node, and that session one on each other node, of which there is one.
    wait_until("psql counts what the nodes keep between them", SOON, || {
        let counted: Option<u64> = nodes.iter().map(|port| from_other_nodes(*port)).sum();
        (counted == Some(CLIENTS)).then_some(())
    });
    let ended = going.finish();
    assert!([0, 4].contains(&ended.code), "{}", ended.said());
    let result = report::read(&std::fs::read(&json).unwrap()).unwrap();

    let ways = [&result, &result.beside[0]];
    for (way, is_pooled) in ways.into_iter().zip([false, true]) {
        let point = &way.sweep.as_ref().unwrap().points[0];
        let [node1, node2, pooler1, pooler2] = &point.servers[..] else {
            panic!("{:?}: {:?}", point.servers, way.warnings);
        };
        let internal: u64 = [node1, node2].iter().filter_map(|view| view.internal).sum();
        let all: u64 = [node1, node2].iter().filter_map(|view| view.connections).sum();
        let through: u64 = [pooler1, pooler2].iter().filter_map(|view| view.server_connections).sum();
        // HAProxy's checks log in now and then.
        assert!((internal * 2..=internal * 2 + 4).contains(&all), "{point:?}");
        if is_pooled {
            // no more than clients, and none without its own to the other node
            assert!((1..=CLIENTS).contains(&internal) && through >= internal, "{point:?}");
            let counted: u64 = [pooler1, pooler2].iter().filter_map(|view| view.connections).sum();
            assert_eq!(counted, CLIENTS, "{point:?}");
        } else {
            assert_eq!((internal, node1.internal, through), (CLIENTS, Some(4), 0), "{point:?}");
        }
        // haproxy's own port is the target's: all three programs belong to it
        let names: Vec<&str> = way.target.processes.iter().map(|p| p.name.as_str()).collect();
        for program in ["postgres", "pgbouncer", "haproxy"] {
            assert!(names.contains(&program), "{program}: {names:?}");
        }
        assert!(point.cpu.target_cpu_seconds.is_some_and(|used| used > 0.0), "{point:?}");
    }
}

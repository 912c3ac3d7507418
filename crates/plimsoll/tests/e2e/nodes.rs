//! Does the node start, and end, as whoever runs it expects?

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::harness::{
    Going, Node, PLIMSOLL, SOON, directory, is_alive, port, start_command, start_hold, tool, wait_until,
};
use testkit::limited::Signal;

/// All nodes of a user share one certificate, which the first of them signs. On a fresh machine several may be first.
#[test]
fn nodes_that_start_at_once_on_a_fresh_machine_agree_on_one_certificate() {
    for round in 0..4 {
        let state = directory();
        let ports: Vec<u16> = (0..6).map(|_| port()).collect();
        // each waits for a line from the gate, so that all begin in the same moment
        let gate = state.path().join("gate");
        assert!(tool("mkfifo").arg(&gate).status().unwrap().success());
        let begin = |port: &u16| {
            let mut command = Command::new("sh");
            command
                .args(["-c", "read -r _ <\"$0\"; XDG_STATE_HOME=$1 exec \"$2\" serve \"$3\" --processes 1"]);
            command.arg(&gate).arg(state.path()).arg(PLIMSOLL).arg(format!("tls://127.0.0.1:{port}"));
            start_command(directory(), command)
        };
        let mut nodes: Vec<Going> = ports.iter().map(begin).collect();
        let mut opener = fs::File::options().read(true).write(true).open(&gate).unwrap();
        wait_until("all of them waited", SOON, || {
            let waits = |node: &Going| fs::read_link(format!("/proc/{}/fd/0", node.running.pid()));
            nodes.iter().all(|node| waits(node).is_ok_and(|file| file == gate)).then_some(())
        });
        opener.write_all(&[b'\n'].repeat(nodes.len())).unwrap();
        for node in &mut nodes {
            wait_until("the node listened or ended", SOON, || {
                let listens = fs::read_to_string(node.directory.path().join("stdout"))
                    .is_ok_and(|said| said.contains("Ctrl-C ends it"));
                let ended = node.running.wait_for(std::time::Duration::ZERO).unwrap();
                assert_eq!(ended, None, "round {round}: {}", node.stderr());
                listens.then_some(())
            });
        }
        let ca = state.path().join("plimsoll/node-cert.pem").display().to_string();
        let trusts = |port: &u16| {
            let flags = ["-c", "1", "--stages", "1", "--hold", "0s", "--heartbeat", "off", "--ca", &ca];
            start_hold(&format!("tls://127.0.0.1:{port}"), &flags)
        };
        let going: Vec<_> = ports.iter().map(trusts).collect();
        let held = going.into_iter().map(Going::finish);
        for ended in held {
            assert_eq!(ended.result().connections.verified, 1, "round {round}: {}", ended.said());
        }
        let key = fs::metadata(state.path().join("plimsoll/node.pem")).unwrap();
        assert_eq!(key.permissions().mode() & 0o077, 0, "the key is nobody else's");
    }
}

#[test]
fn a_node_that_is_told_to_end_ends_in_good_order_with_all_its_processes() {
    let mut node = Node::start("http", &["--processes", "3"]);
    let processes = node.processes();
    assert_eq!(processes.len(), 4, "{processes:?}");
    node.running.signal(Signal::Terminate).unwrap();
    let status = node.running.wait_for(SOON).unwrap().expect("it ended");
    assert_eq!(status.code(), Some(0));
    assert!(processes.iter().all(|pid| !is_alive(*pid)), "{processes:?}");
}

#[test]
fn a_node_that_is_killed_leaves_none_of_its_processes_behind() {
    let mut node = Node::start("http", &["--processes", "3"]);
    let processes = node.processes();
    node.running.signal(Signal::Kill).unwrap();
    wait_until("all of them were gone", SOON, || processes.iter().all(|pid| !is_alive(*pid)).then_some(()));
}

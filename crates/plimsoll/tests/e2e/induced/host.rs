//! Limits of the host, as far as they can be lowered for a test without harm to what else runs on it.

use std::fs;

use model::result::Status;

use super::{apply, finding, named_first, passes, run_in_namespace};
use crate::harness::{say, tool};

#[test]
fn entries_of_the_connection_tracking_table() {
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
    if fs::write(MOST, "300").is_err() || tool("nft").arg("--version").output().is_err() {
        return say("skipped: connection tracking cannot be set up here");
    }
    let track = "nft add table ip t\nnft 'add chain ip t c { type filter hook input priority 0; }'\n\
                 nft add rule ip t c ct state established accept";
    let size = ["-c", "360", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"];
    let words = [&["hold", "tcp://127.0.0.1:7000", "--serve"], &size[..]].concat();
    let Some(first) = run_in_namespace(track, &words) else { return };
    if finding(&first.result(), "host.conntrack").status == Status::Unknown {
        return say("skipped: nothing is tracked in a namespace here");
    }
    let mut first = Some(first);
    let named = named_first("host.conntrack", || {
        first.take().or_else(|| run_in_namespace(track, &words)).expect("it was possible before")
    });
    apply(&named, &["sysctl -w net.netfilter.nf_conntrack_max"]);
    passes("host.conntrack", &run_in_namespace(track, &words).expect("it was possible before"));
    drop(before);
}

/// Loses the first answer to each SYN, so that every connection is half-open for a second: as long as over a very long
/// way. A queue for 128 of them, and nothing but the queue.
const A_LONG_WAY: &str = "nft add table ip t
nft 'add set ip t seen { type inet_service; flags dynamic; size 65535; }'
nft 'add chain ip t c { type filter hook input priority 0; }'
nft 'add rule ip t c tcp flags & (syn|ack) == (syn|ack) tcp dport != @seen add @seen { tcp dport } drop'
sysctl -qw net.core.somaxconn=128 net.ipv4.tcp_syncookies=0";

#[test]
fn half_open_connections_over_a_long_way() {
    if !tool("nft").arg("--version").output().is_ok_and(|done| done.status.success()) {
        return say("skipped: there is no nft here to lose packets with");
    }
    let words = ["storm", "tcp://127.0.0.1:7000", "--serve", "-c", "600", "--hold", "100ms"];
    let Some(first) = run_in_namespace(A_LONG_WAY, &words) else { return };
    let mut first = Some(first);
    let named = named_first("listen.syn-queue", || {
        first.take().or_else(|| run_in_namespace(A_LONG_WAY, &words)).expect("it was possible before")
    });
    assert!(named.evidence.iter().any(|e| e.starts_with("TcpExt TCPReqQFullDrop 0 before, ")), "{named:?}");
    let is_command = |line: &&String| line.starts_with("sysctl -w net.");
    let lines: Vec<&str> = named.remedy.iter().filter(is_command).map(String::as_str).collect();
    let lifted = format!("{A_LONG_WAY}\n{}", lines.join("\n"));
    let ended = run_in_namespace(&lifted, &words).expect("it was possible before");
    passes("listen.syn-queue", &ended);
    assert_eq!(ended.result().verdict.first_limit, None, "{}", ended.said());
}

//! Limits of the host, as far as they can be lowered for a test without harm to what else runs on it.

use std::fs;
use std::process::Command;

use model::result::Status;

use super::{apply, finding, hold_in_namespace, named_first, passes};
use crate::harness::say;

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
    let mut first = Some(first);
    let named = named_first("host.conntrack", || {
        first.take().or_else(|| hold_in_namespace(track, &words)).expect("it was possible before")
    });
    apply(&named, &["sysctl -w net.netfilter.nf_conntrack_max"]);
    passes("host.conntrack", &hold_in_namespace(track, &words).expect("it was possible before"));
    drop(before);
}

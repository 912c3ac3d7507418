//! What has the kernel's TCP counted since boot? (`/proc/net/snmp` and `/proc/net/netstat`, proc_pid_net(5))

use model::observation::TcpCounters;

use crate::reader::{Error, Root, Text, Warnings};

/// Reads the counters of this network namespace.
pub(crate) fn read(root: &Root, warnings: &mut Warnings) -> TcpCounters {
    let mut counters = TcpCounters::default();
    if let Some(text) = warnings.keep(root.read("proc/net/snmp")) {
        let mut get = |name| warnings.keep(counter(&text, "Tcp:", name));
        counters.retransmits = get("RetransSegs");
        counters.resets_sent = get("OutRsts");
    }
    if let Some(text) = warnings.keep(root.read("proc/net/netstat")) {
        let mut get = |name| warnings.keep(counter(&text, "TcpExt:", name));
        counters.listen_overflows = get("ListenOverflows");
        counters.listen_drops = get("ListenDrops");
        counters.request_queue_drops = get("TCPReqQFullDrop");
        counters.syn_cookies = get("SyncookiesSent");
        counters.syn_retransmits = get("TCPSynRetrans");
        counters.aborts_on_memory = get("TCPAbortOnMemory");
        counters.memory_pressures = get("TCPMemoryPressures");
    }
    counters
}

/// A counter by its name: a line of names is followed by a line of values, both with the same first word.
fn counter(text: &Text, group: &str, name: &str) -> Result<Option<u64>, Error> {
    let mut lines = text.lines().filter(|line| line.word(0) == Some(group));
    let Some(names) = lines.next() else { return Ok(None) };
    let values = lines.next().ok_or_else(|| names.malformed("a line of values after it"))?;
    let Some(at) = names.text.split_ascii_whitespace().position(|n| n == name) else { return Ok(None) };
    values.value(at, "a number for each name in the line before").map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn counters_are_found_by_name() {
        let fake = Fake::new();
        fake.file(
            "proc/net/snmp",
            "Ip: Forwarding\nIp: 1\nTcp: MaxConn RetransSegs InErrs OutRsts\nTcp: -1 5 0 6\nUdp: A\nUdp: 1\n",
        );
        fake.file(
            "proc/net/netstat",
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPMemoryPressures TCPSynRetrans TCPNew\n\
             TcpExt: 1 2 3 4 5 99\nIpExt: X\nIpExt: 1\n",
        );
        let mut warnings = Warnings::default();
        assert_eq!(
            read(&fake.root(), &mut warnings),
            TcpCounters {
                retransmits: Some(5),
                resets_sent: Some(6),
                syn_cookies: Some(1),
                listen_overflows: Some(2),
                listen_drops: Some(3),
                memory_pressures: Some(4),
                syn_retransmits: Some(5),
                request_queue_drops: None,
                aborts_on_memory: None,
            }
        );
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn malformed_names_path_and_line() {
        let fake = Fake::new();
        fake.file("proc/net/snmp", "Tcp: RetransSegs OutRsts\nTcp: 5\n");
        fake.file("proc/net/netstat", "TcpExt: ListenDrops\n");
        let mut warnings = Warnings::default();
        let counters = read(&fake.root(), &mut warnings);
        assert_eq!(counters, TcpCounters { retransmits: Some(5), ..TcpCounters::default() });
        let warnings = warnings.take().join("\n");
        assert!(warnings.contains("proc/net/snmp, line 2: expected a number for each name"), "{warnings}");
        assert!(warnings.contains("proc/net/netstat, line 1: expected a line of values"), "{warnings}");
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "(Tcp:[ a-zA-Z0-9-]{0,40}\n){0,3}.{0,40}") {
            let _ = counter(&Text { path: "x".into(), text }, "Tcp:", "a");
        }
    }
}

//! How do the node's processes know of each other's connections? A page of counters each, in shared memory.

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::MemfdFlags;

use crate::NodeError;

/// Room for one process's counters: its own page, so that no two processes write to one cache line.
const PAGE: usize = 4096;

/// What is counted. The order is the place on the page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Accepted,
    Live,
    TurnedAway,
    AcceptFailures,
    IdleClosed,
    Failed,
    BytesIn,
    BytesOut,
}

/// Name, OpenMetrics type and help of each [`Count`], in its order.
const FAMILIES: [(&str, &str, &str); 8] = [
    ("plimsoll_node_connections_accepted", "counter", "Connections taken from the accept queue."),
    ("plimsoll_node_connections", "gauge", "Connections held now."),
    ("plimsoll_node_connections_turned_away", "counter", "Connections refused by --max-connections."),
    (
        "plimsoll_node_accept_failures",
        "counter",
        "accept() calls that failed for want of descriptors or memory.",
    ),
    ("plimsoll_node_connections_idle_closed", "counter", "Connections closed by --idle-timeout."),
    ("plimsoll_node_connections_failed", "counter", "Connections that ended with an error."),
    ("plimsoll_node_received_bytes", "counter", "Bytes read from clients."),
    ("plimsoll_node_sent_bytes", "counter", "Bytes written to clients."),
];

/// The counters of all processes of one node.
pub(crate) struct Board {
    memory: MmapRaw,
    processes: usize,
    /// Keeps the memory's descriptor open, by whose path the children find it.
    file: File,
}

impl Board {
    /// Makes the board for a number of processes.
    pub(crate) fn new(processes: u32) -> Result<Self, NodeError> {
        let setup = |e: &dyn std::fmt::Display| NodeError::Setup(format!("shared counters: {e}"));
        let fd = rustix::fs::memfd_create("plimsoll-node", MemfdFlags::CLOEXEC).map_err(|e| setup(&e))?;
        let file = File::from(fd);
        file.set_len(PAGE as u64 * u64::from(processes)).map_err(|e| setup(&e))?;
        Self::over(file, processes)
    }

    /// Opens the board that another process made.
    pub(crate) fn open(path: &str, processes: u32) -> Result<Self, NodeError> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| NodeError::Setup(format!("shared counters at {path}: {e}")))?;
        Self::over(file, processes)
    }

    fn over(file: File, processes: u32) -> Result<Self, NodeError> {
        let memory =
            MmapRaw::map_raw(&file).map_err(|e| NodeError::Setup(format!("shared counters: {e}")))?;
        if memory.len() < PAGE * processes as usize {
            return Err(NodeError::Setup("shared counters: too small".to_owned()));
        }
        Ok(Self { memory, processes: processes as usize, file })
    }

    /// Where a child of this process finds the memory.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// One counter of one process.
    #[expect(unsafe_code, reason = "atomics in memory that several processes share")]
    pub(crate) fn at(&self, process: usize, count: Count) -> &AtomicU64 {
        assert!(process < self.processes);
        let offset = process * PAGE + count as usize * size_of::<AtomicU64>();
        // SAFETY: the offset lies within the mapping (checked above and when it was made), is 8-byte aligned as
        // the mapping is page-aligned, and all processes touch it through atomics only; it lives as long as self.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// One counter over all processes.
    pub(crate) fn total(&self, count: Count) -> u64 {
        (0..self.processes).map(|p| self.at(p, count).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// All counters as OpenMetrics text.
    pub(crate) fn open_metrics(&self) -> String {
        const ORDER: [Count; 8] = [
            Count::Accepted,
            Count::Live,
            Count::TurnedAway,
            Count::AcceptFailures,
            Count::IdleClosed,
            Count::Failed,
            Count::BytesIn,
            Count::BytesOut,
        ];
        let mut text = String::new();
        for (count, (name, kind, help)) in ORDER.into_iter().zip(FAMILIES) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let _ = writeln!(
                text,
                "# TYPE {name} {kind}\n# HELP {name} {help}\n{name}{suffix} {}",
                self.total(count)
            );
        }
        let _ = writeln!(
            text,
            "# TYPE plimsoll_node_processes gauge\n# HELP plimsoll_node_processes Processes that share the ports.\n\
             plimsoll_node_processes {}\n# EOF",
            self.processes
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_see_one_board() {
        let mine = Board::new(2).unwrap();
        let theirs = Board::open(&mine.path(), 2).unwrap();
        mine.at(0, Count::Live).store(3, Ordering::Relaxed);
        theirs.at(1, Count::Live).store(4, Ordering::Relaxed);
        assert_eq!(mine.total(Count::Live), 7);
        assert!(theirs.open_metrics().contains("plimsoll_node_connections 7\n"));
        assert!(theirs.open_metrics().ends_with("# EOF\n"));
    }
}

//! What did the probes see? Readings of the target's and the generator's processes, and of their host.
//!
//! Every field that a kernel, a permission or a distance can hide is an `Option`: `None` is "unknown",
//! never zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Readings of one group of processes (the target's tree, or the generator's workers), summed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Processes alive.
    pub processes: u64,
    /// User memory: PSS over all processes (`/proc/PID/smaps_rollup`).
    pub user_bytes: Option<u64>,
    /// Memory of their page tables (`VmPTE` in `/proc/PID/status`).
    pub page_table_bytes: Option<u64>,
    /// Open descriptors over all processes.
    pub descriptors: Option<u64>,
    /// Open descriptors of the process that has the most: the one whose limit is met first.
    pub most_descriptors: Option<u64>,
    /// Threads over all processes.
    pub threads: u64,
    /// User and system CPU seconds since the processes' start, those that ended included where known.
    pub cpu_seconds: f64,
    /// CPU that their busiest thread used since the last look; 1.0: it had a CPU to itself. `None`: the first look, or
    /// too many threads to look at each.
    pub busiest_thread_cpus: Option<f64>,
    /// How late the event loop came, by the process's own metrics (Node); `None`: it has none, or does not say.
    pub event_loop_lag_seconds: Option<f64>,
    /// Their managed heap, where one was found.
    pub heap: Option<Heap>,
    /// The cgroup they run in, where it is one that limits something.
    pub cgroup: Option<Cgroup>,
}

/// A managed heap: a JVM's, read from its `hsperfdata` file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heap {
    /// Where it was read.
    pub source: String,
    /// Bytes in use, garbage not yet collected included.
    pub used_bytes: u64,
    /// The most it may grow to (`-Xmx`).
    pub max_bytes: Option<u64>,
    /// Collections since its start.
    pub collections: Option<u64>,
    /// Seconds spent in them.
    pub collection_seconds: Option<f64>,
}

/// Readings of one cgroup, v1 or v2.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cgroup {
    /// Its path below the mount.
    pub path: String,
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// The memory limit; `None`: unlimited or unknown.
    pub memory_limit_bytes: Option<u64>,
    /// The file that sets it, of this group or of one above it; so for the others.
    pub memory_limit_file: Option<String>,
    /// Times a limit was hit so hard that a process was killed.
    pub oom_kills: Option<u64>,
    /// Seconds in which the group wanted to run and was held back by its CPU quota.
    pub throttled_seconds: Option<f64>,
    /// CPUs the quota allows (quota / period); `None`: no quota.
    pub cpu_limit: Option<f64>,
    /// The file that sets the quota.
    pub cpu_limit_file: Option<String>,
    /// Tasks in it.
    pub pids: Option<u64>,
    /// The most tasks it may hold; `None`: unlimited or unknown.
    pub pids_limit: Option<u64>,
    /// The file that sets it.
    pub pids_limit_file: Option<String>,
}

/// Readings of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostReading {
    /// `MemAvailable`.
    pub memory_available_bytes: Option<u64>,
    /// Kernel objects (`Slab` in `/proc/meminfo`): sockets, files, epoll entries live here.
    pub slab_bytes: Option<u64>,
    /// Bytes queued in TCP socket buffers (`mem` of `TCP:` in `/proc/net/sockstat`, pages).
    pub socket_buffer_bytes: Option<u64>,
    /// TCP sockets in use.
    pub tcp_in_use: Option<u64>,
    /// TCP sockets in TIME-WAIT.
    pub tcp_time_wait: Option<u64>,
    /// Descriptors allocated over the whole host (`fs.file-nr`).
    pub files: Option<u64>,
    /// CPU seconds spent busy over all CPUs since boot (all but idle and iowait).
    pub cpu_busy_seconds: Option<f64>,
    /// Seconds in which some task waited for a CPU (PSI `some total`).
    pub cpu_pressure_seconds: Option<f64>,
    /// Seconds in which some task waited for memory (PSI `some total`).
    pub memory_pressure_seconds: Option<f64>,
    /// Processes killed for want of memory since boot (`oom_kill` in `/proc/vmstat`).
    pub oom_kills: Option<u64>,
    /// Entries in the connection-tracking table.
    pub conntrack: Option<u64>,
    /// Threads of all processes (`/proc/loadavg`).
    pub tasks: Option<u64>,
}

/// The kernel's TCP counters since boot (`/proc/net/snmp` and `/proc/net/netstat`), of the observed namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpCounters {
    /// Times an accept queue was full when a handshake finished (`ListenOverflows`).
    pub listen_overflows: Option<u64>,
    /// Connections dropped on a listening socket for any reason (`ListenDrops`).
    pub listen_drops: Option<u64>,
    /// SYNs dropped because the request queue was full (`TCPReqQFullDrop`).
    pub request_queue_drops: Option<u64>,
    /// SYN cookies sent.
    pub syn_cookies: Option<u64>,
    /// SYNs and SYN-ACKs sent again (`TCPSynRetrans`).
    pub syn_retransmits: Option<u64>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Resets sent.
    pub resets_sent: Option<u64>,
    /// Connections aborted for want of TCP memory (`TCPAbortOnMemory`).
    pub aborts_on_memory: Option<u64>,
    /// Times TCP entered memory pressure (`TCPMemoryPressures`).
    pub memory_pressures: Option<u64>,
}

/// The target's listening sockets (sock_diag), summed over a `SO_REUSEPORT` group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Listening sockets on the target's port.
    pub sockets: u64,
    /// Connections that wait to be accepted now, in the fullest queue.
    pub queued: u64,
    /// The most that one queue holds: the smaller of the server's backlog and `net.core.somaxconn`.
    pub backlog: u64,
}

/// What a server says of its own connections, in its own views.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerView {
    /// Where it was read: `pg_stat_activity at 127.0.0.1:5432`, `SHOW POOLS at 127.0.0.1:6432`, `INFO at …`.
    pub source: String,
    /// Connections of clients that it counts, the one that asked not among them.
    pub connections: Option<u64>,
    /// Connections that come from other nodes of its own cluster.
    pub internal: Option<u64>,
    /// Connections that are at work.
    pub active: Option<u64>,
    /// Of a pooler: clients that wait for a connection to the server.
    pub waiting: Option<u64>,
    /// Of a pooler: how long the one that has waited longest has.
    pub longest_wait_seconds: Option<f64>,
    /// Of a pooler: its connections to the server behind it.
    pub server_connections: Option<u64>,
    /// The most connections that it takes.
    pub limit: Option<u64>,
    /// Of these, how many are kept for superusers.
    pub reserved: Option<u64>,
    /// Of a pooler: the most connections to the server for one pool.
    pub pool_limit: Option<u64>,
}

/// What the probes saw at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// The target's processes; `None`: they cannot be seen from here.
    pub target: Option<Group>,
    /// The generator's processes: coordinator and workers.
    pub generator: Option<Group>,
    /// The host that the generator runs on (and a local target too).
    pub host: HostReading,
    /// TCP counters of that host.
    pub tcp: TcpCounters,
    /// The target's listening sockets; `None`: they cannot be seen from here.
    pub listener: Option<Listener>,
    /// The target's host, where it is another one and an observer reads it there.
    pub target_host: Option<TargetHost>,
    /// What servers say of their own connections; empty: none does, or the login may not ask.
    #[serde(default)]
    pub servers: Vec<ServerView>,
}

/// Readings of the target's host, where that is not the generator's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetHost {
    /// The host.
    pub host: HostReading,
    /// Its TCP counters.
    pub tcp: TcpCounters,
}

/// Settings of a host, read once before the first socket is opened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSettings {
    /// `net.ipv4.ip_local_port_range`, both ends included.
    pub port_range: Option<(u16, u16)>,
    /// Ports inside the range that `net.ipv4.ip_local_reserved_ports` takes out.
    pub reserved_ports: u64,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub tcp_max_syn_backlog: Option<u64>,
    /// `fs.file-max`.
    pub file_max: Option<u64>,
    /// `fs.nr_open`.
    pub nr_open: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`; `None`: no connection tracking.
    pub conntrack_max: Option<u64>,
    /// `net.ipv4.tcp_mem`, in pages: low, pressure, high.
    pub tcp_mem_pages: Option<[u64; 3]>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
    /// `kernel.pid_max`.
    pub pid_max: Option<u64>,
}

/// Settings of a process: the target's, or the generator's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSettings {
    /// Process id.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Soft limit of descriptors.
    pub nofile_soft: Option<u64>,
    /// Hard limit of descriptors.
    pub nofile_hard: Option<u64>,
    /// Descriptors that were open before the run.
    pub descriptors: Option<u64>,
    /// Limit of processes of its user (`RLIMIT_NPROC`).
    pub nproc_soft: Option<u64>,
}

/// All that could be read before the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// The host of the generator.
    pub host: HostSettings,
    /// The target's host, where it is another one and an observer reads it there.
    pub target_host: Option<HostSettings>,
    /// One worker's limits.
    pub worker: ProcessSettings,
    /// The target's processes that accept connections; empty: they cannot be seen from here.
    pub target: Vec<ProcessSettings>,
    /// Why the target's processes cannot be seen, and how to make them seen; `None`: they can.
    pub target_hidden: Option<String>,
    /// Whether the target runs on the generator's host, so that both share its kernel and memory.
    pub same_host: bool,
    /// Source addresses that the plan uses, and how many connections each may hold.
    pub sources: Vec<String>,
    /// Connections that one source may hold to the target.
    pub connections_per_source: u64,
    /// Source addresses that could be had at most (all of 127.0.0.0/8 on loopback).
    pub sources_available: u64,
    /// Destination addresses.
    pub destinations: u64,
    /// Descriptors that a worker needs for itself.
    pub worker_base_descriptors: u64,
}

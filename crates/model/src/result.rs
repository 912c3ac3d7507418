//! What came out: the one versioned document that every output is drawn from.
//!
//! The names are a contract (see docs/result.schema.json). What was seen (`spec`, `settings`, `stages`,
//! `series`, …) and what was concluded from it (`cost`, `line`, `limits`, `warnings`, `verdict`) stand side
//! by side, so that a stored run can be judged again by later rules.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::churn::ChurnResult;
use crate::estimate::Estimate;
use crate::failure::{FailureKind, Tally};
use crate::histogram::Latency;
use crate::observation::{
    Group, HostReading, Listener, Observation, ServerView, Settings, TargetHost, TcpCounters,
};
use crate::spec::Spec;
use crate::storm::StormResult;
use crate::sweep::{Difference, SweepResult};
use crate::talk::TalkResult;

/// The version of this document's shape.
pub const SCHEMA: u32 = 1;

/// One run, complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "Plimsoll result")]
pub struct RunResult {
    /// Version of Plimsoll that ran.
    pub plimsoll: String,
    /// Version of this document's shape.
    pub schema: u32,
    /// Which experiment: `hold`, `storm`, `talk`, `sweep`, `churn`.
    pub experiment: String,
    /// When it began, RFC 3339 in UTC.
    pub started_at: String,
    /// How long it took from start to end.
    pub seconds: f64,
    /// The command that repeats it.
    pub command: Vec<String>,
    /// What was asked.
    pub spec: Spec,
    /// The generator's host.
    pub host: Host,
    /// The server under test, as far as it can be seen.
    pub target: TargetSeen,
    /// Who drove the connections.
    pub workers: Vec<WorkerSeen>,
    /// Settings of both sides before the run.
    pub settings: Settings,
    /// What the probes saw before the first connection.
    pub before: Observation,
    /// What the probes saw at the end of the hold, before the drain.
    pub after: Observation,
    /// How many connections, and how they fared.
    pub connections: Connections,
    /// How fast they came to be.
    pub establish: Establish,
    /// Heartbeats on held connections.
    pub heartbeat: Heartbeat,
    /// The last verify pass: a round trip on every single connection.
    pub verify: Verify,
    /// The plateaus, in the order in which they were run.
    pub stages: Vec<Stage>,
    /// The rounds of a storm; `None`: another experiment.
    #[serde(default)]
    pub storm: Option<StormResult>,
    /// How the talk went; `None`: another experiment.
    #[serde(default)]
    pub talk: Option<TalkResult>,
    /// Throughput and latency at rising client counts; `None`: another experiment.
    #[serde(default)]
    pub sweep: Option<SweepResult>,
    /// The same sweep on other ways to the server, run in turns with this one: each a result of its own.
    #[serde(default)]
    pub beside: Vec<RunResult>,
    /// The ways beside this one, compared with it (concluded).
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// How an application's pool fared; `None`: another experiment.
    #[serde(default)]
    pub churn: Option<ChurnResult>,
    /// The run over time.
    pub series: Vec<Moment>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Cost per connection (concluded).
    pub cost: Costs,
    /// The largest stage at which every connection was verified within the objective (concluded).
    pub line: Line,
    /// What can break, lowest ceiling first (concluded).
    pub limits: Vec<Finding>,
    /// What to know before trusting the figures (concluded).
    pub warnings: Vec<String>,
    /// The `--fail-if` expressions and whether they held (concluded).
    pub thresholds: Vec<Threshold>,
    /// The answer in one sentence (concluded).
    pub verdict: Verdict,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// CPUs that may be used.
    pub cpus: u32,
    /// Memory in all.
    pub memory_bytes: u64,
}

/// The target as far as it can be seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSeen {
    /// Its URL.
    pub url: String,
    /// The addresses that its name stands for.
    pub addresses: Vec<String>,
    /// Its processes; empty where they cannot be seen.
    pub processes: Vec<ProcessSeen>,
    /// Its host, where that is another one and an observer reads it there.
    pub host: Option<Host>,
}

/// One process of the target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessSeen {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// `listens` if it holds the listening socket, `parent` if one that does descends from it, else `child`.
    pub role: String,
}

/// One worker process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerSeen {
    /// Its number from 0.
    pub id: u32,
    /// The host it ran on.
    pub host: String,
    /// Processes it consists of.
    pub processes: u32,
    /// Its process id.
    pub pid: u32,
    /// Source addresses it connected from; empty: the kernel's choice.
    pub sources: Vec<String>,
    /// Its share of the connections.
    pub share: u64,
    /// How it ended before its time; `None`: it did not.
    pub died: Option<String>,
}

/// How the connections fared over the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Asked for.
    pub requested: u64,
    /// TCP connections opened.
    pub opened: u64,
    /// Connections that became ready.
    pub ready: u64,
    /// Connections still held at the end of the hold.
    pub held: u64,
    /// Connections whose round trip came back in the last verify pass.
    pub verified: u64,
    /// Failures by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// For a kind, the first words that came with it.
    pub failed_example: BTreeMap<FailureKind, String>,
    /// How old ready connections were when the target closed or reset them.
    pub closed_age: Option<Latency>,
    /// How long these connections had been quiet then: since they became ready, or their last heartbeat was due.
    pub closed_quiet: Option<Latency>,
}

impl Connections {
    /// Takes over a tally of failures.
    pub fn set_failed(&mut self, tally: &Tally) {
        self.failed = tally.count.clone();
        self.failed_example = tally.example.clone();
    }

    /// All failures together.
    pub fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// How fast connections came to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Establish {
    /// Time spent establishing, over all stages.
    pub seconds: f64,
    /// Connections that became ready per second of that time.
    pub rate_per_second: f64,
    /// Latency of each phase: `tcp`, `tls`, `upgrade`, `auth`, `ready`; those that occurred.
    pub phases: BTreeMap<String, Latency>,
}

/// Heartbeats, by intended time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// Seconds between two heartbeats of one connection; `None`: none were asked for.
    pub interval_seconds: Option<f64>,
    /// How many came due.
    pub sent: u64,
    /// How many were answered (or arrived).
    pub answered: u64,
    /// How many were not answered within the patience or before the end.
    pub missed: u64,
    /// From the intended time to the answer; for arriving heartbeats, how late they came.
    pub latency: Option<Latency>,
}

/// A verify pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verify {
    /// How long the pass over all connections took.
    pub seconds: f64,
    /// Round trips per second.
    pub rate_per_second: f64,
    /// Latency of one round trip.
    pub latency: Option<Latency>,
}

/// Why a stage was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// A step of the ramp, or of growing until it breaks.
    Ramp,
    /// Narrowing down where it broke.
    Bisect,
    /// The last good size once more, held.
    Confirm,
}

/// One plateau.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Why it was run.
    pub purpose: Purpose,
    /// Connections it was to hold.
    pub connections: u64,
    /// When it began, from the start of the run.
    pub t_seconds: f64,
    /// How long establishing took.
    pub seconds: f64,
    /// Connections that became ready in it.
    pub established: u64,
    /// Ready connections when establishing ended.
    pub ready: u64,
    /// Connections whose round trip came back in its verify pass.
    pub verified: u64,
    /// Failures in it, by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// How long its verify pass took.
    pub verify_seconds: f64,
    /// Round trips of its verify pass.
    pub latency: Option<Latency>,
    /// From `connect()` to ready, of the connections established in it.
    pub ready_latency: Option<Latency>,
    /// How late the generator's own loop ran in it.
    pub generator_lag: Option<Latency>,
    /// The target's processes at its end; `None`: not visible.
    pub target: Option<Group>,
    /// The generator's processes at its end.
    pub generator: Option<Group>,
    /// The generator's host at its end.
    pub host: HostReading,
    /// TCP counters of that host at its end.
    pub tcp: TcpCounters,
    /// The target's listening sockets at its end; `None`: not visible.
    pub listener: Option<Listener>,
    /// The target's host at its end, where it is another one and an observer reads it there.
    pub target_host: Option<TargetHost>,
    /// What servers said of their own connections at its end.
    #[serde(default)]
    pub servers: Vec<ServerView>,
    /// What each side used while connections were established.
    pub establishing: Option<CpuUse>,
    /// What each side used in the quiet part at its end.
    pub idle: Option<CpuUse>,
    /// Whether every connection was verified within the objective.
    pub passed: bool,
    /// Why it did not pass; `None` if it did.
    pub why_failed: Option<String>,
    /// Whether the measurement can be trusted (concluded).
    pub valid: bool,
    /// Why it cannot (concluded).
    pub why_invalid: Option<String>,
}

/// CPU used over some part of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// Length of the part.
    pub seconds: f64,
    /// CPU seconds of the target's processes in it; `None`: not visible.
    pub target_cpu_seconds: Option<f64>,
    /// CPU seconds of the generator's processes in it.
    pub generator_cpu_seconds: Option<f64>,
}

/// One moment of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Since the start of the run.
    pub t_seconds: f64,
    /// What was going on: `establish`, `verify`, `settle`, `talk`, `load`, `hold`, `drain`.
    pub doing: String,
    /// Connections that the current stage asks for.
    pub wanted: u64,
    /// Ready connections now.
    pub ready: u64,
    /// Connections being established now.
    pub establishing: u64,
    /// Connections opened since the last moment.
    pub opened: u64,
    /// Failures since the last moment, by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// Heartbeats answered since the last moment.
    pub beats_answered: u64,
    /// Heartbeats missed since the last moment.
    pub beats_missed: u64,
    /// Median heartbeat latency since the last moment.
    pub beat_p50_ms: Option<f64>,
    /// 99th percentile of the heartbeats' latency since the last moment.
    pub beat_p99_ms: Option<f64>,
    /// Longest heartbeat latency since the last moment.
    pub beat_max_ms: Option<f64>,
    /// Messages of a talk sent since the last moment.
    #[serde(default)]
    pub messages_sent: u64,
    /// Messages of a talk answered since the last moment.
    #[serde(default)]
    pub messages_answered: u64,
    /// Median latency of the messages answered since the last moment, by their intended time.
    #[serde(default)]
    pub message_p50_ms: Option<f64>,
    /// 99th percentile of the messages' latency since the last moment.
    #[serde(default)]
    pub message_p99_ms: Option<f64>,
    /// Longest latency of a message since the last moment.
    #[serde(default)]
    pub message_max_ms: Option<f64>,
    /// Round trips verified since the last moment.
    pub verified: u64,
    /// User memory of the target.
    pub target_user_bytes: Option<u64>,
    /// CPUs' worth of work that the target did since the last moment.
    pub target_cpus: Option<f64>,
    /// User memory of the generator.
    pub generator_user_bytes: Option<u64>,
    /// CPU that the target's busiest thread used since the last moment; 1.0: it had a CPU to itself.
    pub target_busiest_cpus: Option<f64>,
    /// CPUs of the generator's host that were busy since the last moment.
    pub host_cpus: Option<f64>,
    /// CPUs' worth of work that the generator did since the last moment.
    pub generator_cpus: Option<f64>,
    /// Kernel objects and socket buffers of the host.
    pub kernel_bytes: Option<u64>,
    /// Connections waiting in the target's fullest accept queue.
    pub accept_queue: Option<u64>,
    /// Handshakes that found the accept queue full since the last moment (`ListenOverflows`).
    pub listen_overflows: Option<u64>,
    /// SYNs and SYN-ACKs sent again since the last moment.
    pub syn_retransmits: Option<u64>,
    /// Descriptors of the target's process that has most of them.
    pub target_most_descriptors: Option<u64>,
    /// Threads of the target.
    pub target_threads: Option<u64>,
    /// Longest lag of the generator's own loop since the last moment.
    pub generator_lag_ms: Option<f64>,
}

/// Cost per connection of each side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Costs {
    /// The target's.
    pub target: Cost,
    /// The generator's.
    pub generator: Cost,
    /// What cannot be told apart because both ends share one kernel: bytes of kernel memory for both ends
    /// of one connection. `None` where the target is elsewhere (then `generator` has its own kernel's).
    pub shared_kernel_bytes_per_connection: Option<Estimate>,
}

/// What one held connection costs one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// User memory (PSS).
    pub user_bytes_per_connection: Option<Estimate>,
    /// Kernel memory: objects and socket buffers.
    pub kernel_bytes_per_connection: Option<Estimate>,
    /// Descriptors.
    pub descriptors_per_connection: Option<Estimate>,
    /// Threads.
    pub threads_per_connection: Option<Estimate>,
    /// CPU.
    pub cpu_seconds_per_second: CpuCost,
    /// The most user memory seen.
    pub peak_user_bytes: Option<u64>,
}

/// CPU of one side: 1.0 is one CPU, wholly busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCost {
    /// While the last stage was held, heartbeats included.
    pub idle_stage: Option<f64>,
    /// Slope of the idle CPU over stages: what one more held connection costs.
    pub per_connection: Option<Estimate>,
}

/// The line: how deep she may be loaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The largest stage at which every connection was verified within the objective; 0: none.
    pub connections: u64,
    /// Why it stands there.
    pub reason: String,
    /// Whether something broke beyond it; false: it is only as far as was asked.
    pub broke: bool,
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client's host or process (the generator's).
    Client,
    /// The target's host.
    Host,
    /// The server process.
    Server,
    /// Something between.
    Between,
}

/// Where a run stands with one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was met in this run.
    Hit,
    /// The run came close.
    Near,
    /// It was seen to be far away.
    Clear,
    /// It could not be read.
    Unknown,
}

/// What was found out about one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its name in the catalogue: `server.nofile`.
    pub id: String,
    /// Whose it is.
    pub side: Side,
    /// Where the run stands with it.
    pub status: Status,
    /// In one line: what it is and where it stands here.
    pub summary: String,
    /// How many connections it allows; `None` where it is not counted in connections or not known.
    pub ceiling_connections: Option<u64>,
    /// Lower end of the ceiling's interval, where the ceiling was computed from a fitted cost.
    pub ceiling_low: Option<u64>,
    /// Upper end of that interval.
    pub ceiling_high: Option<u64>,
    /// What was read, where, before and after.
    pub evidence: Vec<String>,
    /// Lines that lift it, ready to be pasted; comments start with `#`.
    pub remedy: Vec<String>,
}

/// A `--fail-if` expression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Threshold {
    /// As written.
    pub expression: String,
    /// The figure that it was compared with; `None`: not measured in this run.
    pub value: Option<f64>,
    /// Whether it held (and the run therefore fails).
    pub held: bool,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// One sentence for whoever reads only one.
    pub sentence: String,
    /// What broke first, by its id in the catalogue; `None`: nothing did, or it could not be told.
    pub first_limit: Option<String>,
    /// Whether the target held what was asked.
    pub held: bool,
    /// Whether the measurement can be trusted.
    pub trusted: bool,
}

impl RunResult {
    /// A result in which nothing has been seen yet.
    pub fn new(experiment: &str, spec: Spec) -> Self {
        Self {
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            started_at: String::new(),
            seconds: 0.0,
            command: Vec::new(),
            host: Host::default(),
            target: TargetSeen { url: spec.target.to_string(), ..TargetSeen::default() },
            workers: Vec::new(),
            settings: Settings::default(),
            before: Observation::default(),
            after: Observation::default(),
            connections: Connections { requested: spec.connections, ..Connections::default() },
            establish: Establish::default(),
            heartbeat: Heartbeat { interval_seconds: spec.heartbeat_seconds, ..Heartbeat::default() },
            verify: Verify::default(),
            stages: Vec::new(),
            storm: None,
            talk: None,
            sweep: None,
            beside: Vec::new(),
            differences: Vec::new(),
            churn: None,
            series: Vec::new(),
            interrupted: false,
            cost: Costs::default(),
            line: Line::default(),
            limits: Vec::new(),
            warnings: Vec::new(),
            thresholds: Vec::new(),
            verdict: Verdict::default(),
            spec,
        }
    }

    /// The documented exit code of a finished run: 0, 3, 4, 99 or 130.
    pub fn exit_code(&self) -> u8 {
        if self.interrupted {
            130
        } else if !self.verdict.trusted {
            4
        } else if !self.verdict.held {
            3
        } else if self.thresholds.iter().any(|t| t.held) {
            99
        } else {
            0
        }
    }

    /// The stages that passed and whose measurement can be trusted: what costs are fitted over.
    pub fn good_stages(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|s| s.passed && s.valid)
    }
}

//! What is a sweep, and what was seen of it? Throughput and latency at rising client counts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::histogram::{Latencies, Latency};
use crate::observation::ServerView;
use crate::result::CpuUse;
use crate::talk::Arrivals;

/// Into how many equal parts the measured part of a stage is cut, to tell how much its throughput varies.
pub const SLICES: usize = 20;

/// At which client counts, for how long each, and how they ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepSpec {
    /// The client counts, rising.
    pub clients: Vec<u64>,
    /// Whether more client counts are tried around the peak.
    pub adaptive: bool,
    /// How long all clients work at each count before it is measured.
    pub warm_up_seconds: f64,
    /// How long it is measured at each count.
    pub measure_seconds: f64,
    /// How often each count is measured.
    pub repeat: u32,
    /// Operations that come due each second, over all clients; `None`: a closed loop, in which each client begins its
    /// next operation as soon as the last was answered.
    pub rate_per_second: Option<f64>,
    /// What lies between two operations that come due.
    pub arrivals: Arrivals,
    /// What this way to the server is called, beside others.
    pub label: String,
}

/// What one worker saw of a measured part: made to be merged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Clients that stood when the work began.
    pub clients: u64,
    /// Those of them that were lost before the measured part was over.
    pub lost: u64,
    /// Those of them for which at least one operation was answered, be it while they warmed up.
    pub served: u64,
    /// Operations answered in each of [`SLICES`] equal parts.
    pub slices: Vec<u64>,
    /// Of these operations: from the intended time to the answer.
    pub latency: Latencies,
    /// In an open loop: operations that came due in the measured part.
    pub due: u64,
    /// Operations that were due before the end of the measured part, and not begun by then, as no client was free.
    pub unmet: u64,
}

impl Loaded {
    /// Adds what another worker saw.
    pub fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.lost += other.lost;
        self.served += other.served;
        self.slices.resize(self.slices.len().max(other.slices.len()), 0);
        self.slices.iter_mut().zip(&other.slices).for_each(|(mine, theirs)| *mine += theirs);
        self.latency.merge(&other.latency);
        self.due += other.due;
        self.unmet += other.unmet;
    }
}

/// One client count, measured once. What each side held and needed at rest stands in the stage of the same number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepPoint {
    /// Which of the run's `stages` it is, from 0.
    pub stage: usize,
    /// Clients that were asked for.
    pub clients: u64,
    /// Clients that stood when the work began.
    pub connected: u64,
    /// Clients lost while they worked.
    pub lost: u64,
    /// Clients for which at least one operation was answered.
    pub served: u64,
    /// The first words of each kind of failure in it.
    pub failed_example: BTreeMap<crate::FailureKind, String>,
    /// When the measured part began, from the start of the run.
    pub t_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Operations answered in it.
    pub operations: u64,
    /// The same in each of its equal parts.
    pub slices: Vec<u64>,
    /// From the intended time to the answer.
    pub latency: Option<Latency>,
    /// Operations that took longer than the objective.
    pub late: u64,
    /// In an open loop: operations that came due in it; `None`: a closed loop.
    pub due: Option<u64>,
    /// In an open loop: operations that were due and not begun at its end; `None`: a closed loop.
    pub unmet: Option<u64>,
    /// What each side used in it.
    pub cpu: CpuUse,
    /// CPU seconds of the generator's host in it.
    pub host_cpu_seconds: Option<f64>,
    /// What servers said of their own connections while all worked.
    pub servers: Vec<ServerView>,
}

impl SweepPoint {
    /// Operations answered in each second.
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}

/// How a sweep went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepResult {
    /// What was measured, in the order in which it was.
    pub points: Vec<SweepPoint>,
    /// What the curve says (concluded).
    pub reading: Reading,
}

/// What the curve of throughput against clients says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// For each client count, rising: throughput over all its repeats, with its interval.
    pub counts: Vec<Count>,
    /// Where throughput was highest; `None`: nothing was answered.
    pub peak: Option<Peak>,
    /// The largest client count at which 99% of the operations stayed within the objective, as did all counts below.
    pub saturation: Option<Saturation>,
    /// The law of scaling that was fitted.
    pub usl: Option<Usl>,
    /// Why no law was fitted; `None`: one was.
    pub usl_refused: Option<String>,
    /// What throughput and latency do beyond the peak.
    pub shape: Option<Shape>,
    /// Where they queue: from which client count on, and what throughput stays at.
    pub level: Option<Level>,
    /// The first client count at which clients could not connect or were lost, and by what.
    pub broke: Option<Broke>,
}

/// One client count over all its repeats.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Clients.
    pub clients: u64,
    /// Operations a second; the interval comes from batches of slices over all repeats, and allows for their
    /// correlation. `stages` is the number of batches. `None`: nothing was measured.
    pub per_second: Option<Estimate>,
    /// Mean latency.
    pub mean_ms: f64,
    /// Median latency: of the repeats, the middle one.
    pub p50_ms: f64,
    /// 95th percentile: of the repeats, the worst.
    pub p95_ms: f64,
    /// 99th percentile: of the repeats, the worst.
    pub p99_ms: f64,
    /// Clients at work on average by Little's law: throughput times mean latency. In a closed loop it must be the
    /// number of clients, else the generator kept some of them from asking.
    pub little_clients: f64,
    /// CPUs that the target used.
    pub target_cpus: Option<f64>,
    /// CPUs that the generator used.
    pub generator_cpus: Option<f64>,
    /// CPUs of the generator's host that were busy.
    pub host_cpus: Option<f64>,
    /// User memory of the target, at rest with all clients connected.
    pub target_user_bytes: Option<u64>,
    /// Processes of the target.
    pub target_processes: Option<u64>,
    /// Whether every client was connected and served, and the measurement can be trusted: only such counts make the
    /// peak and the law.
    pub good: bool,
    /// Why it is not good; of a good one, why some of its repeats were left out.
    pub why_not: Option<String>,
}

/// Where throughput was highest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// At so many clients.
    pub clients: u64,
    /// The fewest clients whose throughput cannot be told from that of the peak.
    pub clients_low: u64,
    /// The most clients of which the same can be said.
    pub clients_high: u64,
    /// Operations a second.
    pub per_second: Estimate,
}

/// Where throughput stays the same up to the largest count that can be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The fewest clients of which that can be said.
    pub clients_low: u64,
    /// The most.
    pub clients_high: u64,
    /// Operations a second at the most.
    pub per_second: Estimate,
}

/// How far latency stays within the objective.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// The client count.
    pub clients: u64,
    /// Its 99th percentile.
    pub p99_ms: f64,
    /// The next larger count that was measured, and missed the objective; `None`: none did.
    pub missed_at: Option<u64>,
    /// Whether it was measured more than once, and kept it each time.
    pub confirmed: bool,
}

/// The Universal Scalability Law: `X(N) = l N / (1 + s (N - 1) + k N (N - 1))` (N. J. Gunther).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usl {
    /// Operations a second of one client alone.
    pub lambda: Estimate,
    /// Contention: the share of the work that cannot be done side by side.
    pub sigma: Estimate,
    /// Coherency: what each pair of clients costs.
    pub kappa: Estimate,
    /// Where the law has its peak; `None`: it only levels off.
    pub peak_clients: Option<f64>,
    /// The largest deviation of a measured count from the law, as a share of it.
    pub worst_residual: f64,
}

impl Usl {
    /// Operations a second that the law has for so many clients.
    pub fn at(&self, clients: f64) -> f64 {
        let (sigma, kappa) = (self.sigma.value, self.kappa.value);
        let delayed = 1.0 + sigma * (clients - 1.0) + kappa * clients * (clients - 1.0);
        self.lambda.value * clients / delayed
    }
}

/// What lies beyond the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Throughput still grows at the largest count.
    Growing,
    /// Throughput stays, be it lower than at the peak, and latency grows in proportion to the clients: they queue in
    /// front of something that serves a fixed number at a time.
    Queueing,
    /// Throughput falls: the clients are in each other's way.
    Falling,
}

/// Where clients could not be served any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Broke {
    /// The client count.
    pub clients: u64,
    /// How many of them were connected and not lost.
    pub served: u64,
    /// What ended it, in words.
    pub by: String,
}

/// One way to the server against the one named first, at one client count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Which of the ways `beside`, from 0.
    pub beside: usize,
    /// The client count.
    pub clients: u64,
    /// Its throughput less that of the first way, as a share of the latter.
    pub share: Option<Estimate>,
    /// Whether the interval leaves zero out.
    pub seen: bool,
}

//! What is a churn, and what was seen of it? An application's pool of connections, idle and in bursts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Latency;

/// A grid of pool settings, and the traffic that each of them meets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChurnSpec {
    /// The least connections that a pool keeps: one cell of the grid each.
    pub min_pool: Vec<u32>,
    /// The most it may have: one cell each.
    pub max_pool: Vec<u32>,
    /// How long a connection may be idle before it is closed: one cell each; empty: as the library has it.
    pub idle_timeout_seconds: Vec<f64>,
    /// How old a connection may become: one cell each; empty: as the library has it.
    pub max_lifetime_seconds: Vec<f64>,
    /// How long an operation waits for a connection; `None`: as the library has it.
    pub wait_timeout_seconds: Option<f64>,
    /// Operations that come at one instant.
    pub burst: u32,
    /// How long nothing comes before each burst.
    pub idle_seconds: f64,
    /// How many bursts each cell meets.
    pub bursts: u32,
    /// Delay put into each direction together (a round trip's), in front of the target: one cell each; empty: none.
    pub network_delay_seconds: Vec<f64>,
    /// The latency that a burst should stay within.
    pub objective_seconds: f64,
    /// How many instances of the application there are, each with a pool of its own.
    pub instances: u32,
    /// How many connections the server takes; `None`: not said.
    pub server_limit: Option<u64>,
}

/// How the grid went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChurnResult {
    /// The library whose pool it was, with its version.
    pub library: String,
    /// How many connections the server takes, by its own word; `None`: it was not asked, or did not say.
    pub server_limit: Option<u64>,
    /// After how long the server itself closes an idle connection, by its own word; `None`: never, or it did not say.
    pub server_idle_seconds: Option<f64>,
    /// Settings that this library does not have, and what was done about it.
    pub lacks: Vec<String>,
    /// What one connection costs, for each network delay.
    pub prices: Vec<Price>,
    /// A cell for each combination of settings, in the order in which they were run.
    pub cells: Vec<Cell>,
    /// What follows from them (concluded).
    pub advice: Vec<Advice>,
}

/// One combination of settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The least connections of the pool.
    pub min_pool: u32,
    /// The most.
    pub max_pool: u32,
    /// Idle time-out; `None`: as the library has it.
    pub idle_timeout_seconds: Option<f64>,
    /// Longest life; `None`: as the library has it.
    pub max_lifetime_seconds: Option<f64>,
    /// Delay of a round trip that was added.
    pub network_delay_seconds: f64,
    /// How long the cell was run.
    pub seconds: f64,
    /// Bursts that were run.
    pub bursts: u32,
    /// The first operation after each idle time: from the burst's instant to its answer.
    pub first: Option<Latency>,
    /// All operations of the bursts: from the burst's instant to the answer.
    pub operation: Option<Latency>,
    /// From each burst's instant to its last answer.
    pub whole_burst: Option<Latency>,
    /// How late the generator itself began them.
    pub lag: Option<Latency>,
    /// How long operations waited for a connection.
    pub wait: Option<Latency>,
    /// Operations that gave up waiting for a connection.
    pub timeouts: u64,
    /// Operations that failed otherwise.
    pub failed: u64,
    /// The first words of a failure.
    pub failed_example: Option<String>,
    /// Connections created, by the pool's own events where it has them.
    pub created: u64,
    /// Connections closed.
    pub closed: u64,
    /// Of those created, the ones made in whole cycles of idle and burst, after the first burst.
    pub created_in_cycles: u64,
    /// How long these cycles took; 0: there was none.
    pub cycles_seconds: f64,
    /// Connections in the pool at the end of the last idle time.
    pub idle_connections: Option<u64>,
    /// The most connections at once.
    pub most_connections: u64,
    /// The target's user memory with this pool connected, less that without it.
    pub target_user_bytes: Option<i64>,
    /// Where these counts were read: `the driver's events`, `the kernel's sockets`.
    pub counted_by: String,
    /// Whether every operation was answered, the first after idle and 99% of all within the objective (concluded).
    pub meets: bool,
    /// Whether it is the one to be preferred of those that do (concluded).
    pub chosen: bool,
}

impl Cell {
    /// Connections created an hour, of whole cycles only; `None`: there was none.
    pub fn created_per_hour(&self) -> Option<f64> {
        (self.cycles_seconds > 0.0).then(|| self.created_in_cycles as f64 / self.cycles_seconds * 3600.0)
    }
}

/// What the price of one connection is made of, each measured on its own connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Delay of a round trip that was added.
    pub network_delay_seconds: f64,
    /// Connections of which it is the median.
    pub connections: u64,
    /// Opening the TCP connection.
    pub tcp_ms: Option<f64>,
    /// The TLS handshake.
    pub tls_ms: Option<f64>,
    /// Finding out what the server is: a greeting.
    pub topology_ms: Option<f64>,
    /// Logging in.
    pub auth_ms: Option<f64>,
    /// All of it.
    pub ready_ms: Option<f64>,
}

/// One piece of advice, with its arithmetic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// `minimum`, `idle-timeout` or `budget`.
    pub about: String,
    /// What to set.
    pub says: String,
    /// How that was computed, and from what.
    pub because: Vec<String>,
}

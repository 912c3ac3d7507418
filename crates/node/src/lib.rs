//! The node: the reference messaging server, on the same reactor and codecs as the generator.
//!
//! It holds as many connections as its descriptors allow, in as many processes as that takes, and has the
//! switches that make a laboratory of it: ballast, a small backlog, a connection limit, an idle time-out.

mod board;
mod certificate;
mod process;
mod supervisor;

use std::net::SocketAddr;

use model::Scheme;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use certificate::{CA_FILE, Certificate, load, self_signed};
pub use process::run_child;
pub use supervisor::run;

/// One thing to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The protocol. `ws` and `sse` are paths of the HTTP server, so they listen as `http` does.
    pub scheme: Scheme,
    /// Where.
    pub address: SocketAddr,
}

/// How the node is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// What to listen on.
    pub listen: Vec<Listen>,
    /// How many processes share the ports.
    pub processes: u32,
    /// `listen(2)` backlog of each listening socket; the kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// Bytes of really touched memory per connection, to stand for what a session costs elsewhere.
    pub ballast_bytes: u64,
    /// Connections over all processes beyond which new ones are turned away.
    pub max_connections: Option<u64>,
    /// Seconds without a byte from the client after which a connection is closed.
    pub idle_timeout_seconds: Option<f64>,
    /// Seconds between two comment heartbeats on an event stream.
    pub heartbeat_seconds: f64,
    /// Certificate and key for the TLS listeners.
    pub certificate: Option<Certificate>,
}

/// Why the node cannot run.
#[derive(Debug, Error)]
pub enum NodeError {
    /// A port cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, String),
    /// The certificate or key is no use.
    #[error("cannot use the certificate: {0}")]
    Certificate(String),
    /// The kernel refused what the node needs.
    #[error("failed to set up the node: {0}")]
    Setup(String),
    /// One of the node's processes ended.
    #[error("a process of the node ended early: {0}")]
    ChildEnded(String),
}

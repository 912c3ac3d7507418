//! What can be typed after `plimsoll serve`?

use std::path::PathBuf;

use clap::Args;
use model::units;

use super::{Auto, parse_auto, parse_positive_duration};

const SERVE_EXAMPLES: &str = "\
Examples:
  plimsoll serve                                          all protocols on their default ports
  plimsoll serve tcp://127.0.0.1:9000 --processes 8 --ballast 10KiB
  plimsoll serve wss://127.0.0.1:9443 --cert cert.pem --key key.pem --idle-timeout 60s

ws and sse are paths of the HTTP server: /ws echoes, /events streams; /healthz and /metrics answer too. grpc is
plimsoll.v1.Messaging with Echo (unary) and Talk (bidirectional), grpc.health.v1.Health/Check, and reflection.";

#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    /// What to listen on; default: tcp on 7000, tls on 7001, grpc on 7050, grpcs on 7051, http on 7080, https on 7081, all on 127.0.0.1
    pub(crate) urls: Vec<String>,

    /// Processes that share the ports; needed above the descriptor limit of one
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = parse_auto, env = "PLIMSOLL_PROCESSES")]
    pub(crate) processes: Auto,

    /// Backlog of each listening socket; the kernel caps it at net.core.somaxconn
    #[arg(long, value_name = "N", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(1..), env = "PLIMSOLL_BACKLOG")]
    pub(crate) backlog: u32,

    /// Memory to touch for each connection
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = units::parse_size, env = "PLIMSOLL_BALLAST")]
    pub(crate) ballast: u64,

    /// Connections beyond which new ones are turned away
    #[arg(long, value_name = "N", value_parser = units::parse_count, env = "PLIMSOLL_MAX_CONNECTIONS")]
    pub(crate) max_connections: Option<u64>,

    /// Close a connection after this long without a byte from the client
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, env = "PLIMSOLL_IDLE_TIMEOUT")]
    pub(crate) idle_timeout: Option<f64>,

    /// Interval of the comments on an event stream
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration, env = "PLIMSOLL_HEARTBEAT")]
    pub(crate) heartbeat: f64,

    /// Certificate chain for the TLS ports (PEM); default: self-signed on first start
    #[arg(long, value_name = "FILE", requires = "key", env = "PLIMSOLL_CERT")]
    pub(crate) cert: Option<PathBuf>,

    /// Private key for --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "PLIMSOLL_KEY")]
    pub(crate) key: Option<PathBuf>,

    /// End when the process that started it does; for `hold --serve`
    #[arg(long, hide = true)]
    pub(crate) beside: bool,
}

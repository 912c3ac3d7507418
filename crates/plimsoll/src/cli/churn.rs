//! What can be typed after `plimsoll churn`?

use clap::Args;
use model::units;

use super::{OutputArgs, SightArgs, parse_positive_duration};

const CHURN_EXAMPLES: &str = "\
Examples:
  plimsoll churn mongodb://app:secret@10.0.0.5/?tls=true --min-pool 0,10,30 --max-pool 100 --burst 50 --idle 35s
  plimsoll churn postgres://app:secret@10.0.0.7/shop --min-pool 0,10 --idle-timeout 60s,5m --bursts 3
  plimsoll churn redis://127.0.0.1 --min-pool 0,10 --network-delay 1ms,50ms
  plimsoll churn http://127.0.0.1:8080/ --burst 20 --idle 5s --instances 10 --server-limit 500

An application's pool, as its users have it: the MongoDB driver's own, bb8 with tokio-postgres or redis, and an HTTP
client's. Each combination of the settings given is a cell: --bursts times nothing comes for --idle, and then --burst
operations at one instant. The report says what the first of them cost, how many connections were made and closed,
and which settings would meet the objective.

Exit code 3 if no cell met the objective.";

#[derive(Debug, Args)]
#[command(after_help = CHURN_EXAMPLES)]
pub(crate) struct ChurnArgs {
    /// The server under test: mongodb, postgres, redis, rediss, http or https
    #[arg(env = "PLIMSOLL_URL")]
    pub(crate) url: String,

    /// The least connections that the pool keeps; several: a cell each
    #[arg(long, value_name = "N,N", default_value = "0", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=10_000), env = "PLIMSOLL_MIN_POOL")]
    pub(crate) min_pool: Vec<u32>,

    /// The most connections that it may have; several: a cell each
    #[arg(long, value_name = "N,N", default_value = "100", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000), env = "PLIMSOLL_MAX_POOL")]
    pub(crate) max_pool: Vec<u32>,

    /// How long a connection may be idle before the pool closes it; default: as the library has it
    #[arg(long, value_name = "TIME,TIME", value_delimiter = ',', value_parser = parse_positive_duration, env = "PLIMSOLL_IDLE_TIMEOUT")]
    pub(crate) idle_timeout: Vec<f64>,

    /// How old a connection may become; default: as the library has it
    #[arg(long, value_name = "TIME,TIME", value_delimiter = ',', value_parser = parse_positive_duration, env = "PLIMSOLL_MAX_LIFETIME")]
    pub(crate) max_lifetime: Vec<f64>,

    /// How long an operation waits for a connection; default: as the library has it
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, env = "PLIMSOLL_WAIT_TIMEOUT")]
    pub(crate) wait_timeout: Option<f64>,

    /// Operations that come at one instant
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), env = "PLIMSOLL_BURST")]
    pub(crate) burst: u32,

    /// How long nothing comes before each burst
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_IDLE")]
    pub(crate) idle: f64,

    /// How many bursts each cell meets
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000), env = "PLIMSOLL_BURSTS")]
    pub(crate) bursts: u32,

    /// Delay of a round trip, put in front of the target; several: a cell each
    #[arg(long, value_name = "TIME,TIME", value_delimiter = ',', value_parser = units::parse_duration_seconds, env = "PLIMSOLL_NETWORK_DELAY")]
    pub(crate) network_delay: Vec<f64>,

    /// Latency within which all operations of a burst should stay
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_positive_duration, env = "PLIMSOLL_OBJECTIVE")]
    pub(crate) objective: f64,

    /// How many instances of the application there are, each with such a pool
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), env = "PLIMSOLL_INSTANCES")]
    pub(crate) instances: u32,

    /// How many connections the server takes; default: what it says itself, where it does
    #[arg(long, value_name = "N", value_parser = units::parse_count, env = "PLIMSOLL_SERVER_LIMIT")]
    pub(crate) server_limit: Option<u64>,

    #[command(flatten)]
    pub(crate) sight: SightArgs,

    /// Exit with code 99 if this holds of the result: `churn.cells.0.first.max_ms > 100`
    #[arg(long, value_name = "EXPR", env = "PLIMSOLL_FAIL_IF")]
    pub(crate) fail_if: Vec<String>,

    /// A public address is only connected to if it is named here
    #[arg(long, value_name = "HOST", env = "PLIMSOLL_ALLOW_PUBLIC")]
    pub(crate) allow_public: Option<String>,

    #[command(flatten)]
    pub(crate) outputs: OutputArgs,

    /// No progress, and only the verdict
    #[arg(short, long, env = "PLIMSOLL_QUIET")]
    pub(crate) quiet: bool,
}

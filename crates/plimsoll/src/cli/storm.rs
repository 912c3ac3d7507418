//! What can be typed after `plimsoll storm`?

use clap::Args;
use model::units;

use super::{RunArgs, parse_positive_duration};

const STORM_EXAMPLES: &str = "\
Examples:
  plimsoll storm tcp://127.0.0.1:7000 --serve -c 20k
  plimsoll storm wss://chat.internal/ws -c 20k --patience 30s --html storm.html
  plimsoll storm http://127.0.0.1:8080/ -c 10k --bursts 5 --every 2s
  plimsoll storm tcp://127.0.0.1:7000 -c 20k --fail-if 'storm.rounds.1.all_ready_seconds > 1s'

Three rounds: `first`, as --bursts or --spread have it, else all at one instant; `return`, all dropped and back
at one instant; `return with jitter`, the same with full jitter and exponential back-off up to 10 s. Every
connection makes a round trip as soon as it is ready, and counts as ready only if that comes back.

Exit code 3 if a connection of any round never became ready within the patience.";

#[derive(Debug, Args)]
#[command(after_help = STORM_EXAMPLES)]
pub(crate) struct StormArgs {
    /// The server under test: SCHEME://HOST[:PORT][/PATH]
    #[arg(env = "PLIMSOLL_URL")]
    pub(crate) url: String,

    /// How many connections come (10k, 1M)
    #[arg(short = 'c', long = "connections", value_name = "N", value_parser = units::parse_count, env = "PLIMSOLL_CONNECTIONS")]
    pub(crate) connections: u64,

    /// Cut the first round into so many equal bursts
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), env = "PLIMSOLL_BURSTS", conflicts_with = "spread")]
    pub(crate) bursts: u32,

    /// From one burst to the next
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration, env = "PLIMSOLL_EVERY")]
    pub(crate) every: f64,

    /// Spread the first round evenly over this long
    #[arg(long, value_name = "TIME", value_parser = parse_positive_duration, env = "PLIMSOLL_SPREAD")]
    pub(crate) spread: Option<f64>,

    /// How long each round is held before all are dropped
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_HOLD")]
    pub(crate) hold: f64,

    /// How long they stay away after they were dropped
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_AWAY")]
    pub(crate) away: f64,

    /// How long a connection may take to become ready, all its attempts together
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_positive_duration, env = "PLIMSOLL_PATIENCE")]
    pub(crate) patience: f64,

    /// With back-off: how long one attempt may take before the next is made
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_positive_duration, env = "PLIMSOLL_ATTEMPT")]
    pub(crate) attempt: f64,

    /// With back-off: the longest wait before the first attempt; it doubles with each further one, up to 10 s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_positive_duration, env = "PLIMSOLL_BACKOFF")]
    pub(crate) backoff: f64,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

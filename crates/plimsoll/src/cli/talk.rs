//! What can be typed after `plimsoll talk`?

use clap::{Args, ValueEnum};
use model::talk::{Arrivals, Start};
use model::units;

use super::{Heartbeat, RunArgs, parse_heartbeat, parse_positive_duration, parse_positive_rate};
use crate::call::CallArgs;

const TALK_EXAMPLES: &str = "\
Examples:
  plimsoll talk ws://127.0.0.1:7080/ws --serve -c 10k --messages 20 --rate 1/s
  plimsoll talk tcp://127.0.0.1:7000 --serve -c 5k --messages 100 --rate 10/s --arrivals poisson
  plimsoll talk ws://chat.internal/ws -c 20k --start together --html talk.html
  plimsoll talk grpc://127.0.0.1:7050 --serve -c 28232 --messages 20 --rate 1/s
  plimsoll talk redis://127.0.0.1 -c 5k --message 'SET greeting hello'
  plimsoll talk tcp://127.0.0.1:7000 -c 1k --fail-if 'talk.latency.p99_ms > 50'

All connections are opened in stages and verified with one message each. Then, at one instant, every one
begins to send its messages on a schedule of its own: no message waits for the answer to the one before, and
latency counts from the time at which a message was due. A client has succeeded once all of its messages
are answered.

Exit code 3 if a client did not succeed, or fewer than 99% of the answers came within the objective.";

#[derive(Debug, Args)]
#[command(after_help = TALK_EXAMPLES)]
pub(crate) struct TalkArgs {
    /// The server under test: SCHEME://HOST[:PORT][/PATH]
    #[arg(env = "PLIMSOLL_URL")]
    pub(crate) url: String,

    /// How many connections speak (10k, 1M)
    #[arg(short = 'c', long = "connections", value_name = "N", value_parser = units::parse_count, env = "PLIMSOLL_CONNECTIONS")]
    pub(crate) connections: u64,

    /// How many messages each connection sends
    #[arg(long, value_name = "M", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000_000), env = "PLIMSOLL_MESSAGES")]
    pub(crate) messages: u32,

    /// How many messages each connection sends in a given time: 1/s, 10/s, 30/min
    #[arg(long, value_name = "R", default_value = "1/s", value_parser = parse_positive_rate, env = "PLIMSOLL_RATE")]
    pub(crate) rate: f64,

    /// What a message says, as docs/protocols.md has it for the scheme; default: what the scheme has of its own
    #[arg(long, value_name = "TEXT", env = "PLIMSOLL_MESSAGE", conflicts_with = "call")]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) call: CallArgs,

    /// What lies between two messages of a connection: always the same time, or a random one
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Constant, env = "PLIMSOLL_ARRIVALS")]
    pub(crate) arrivals: ArrivalsArg,

    /// Whether the first messages are spread over one interval, or all sent at one instant
    #[arg(long, value_enum, default_value_t = StartArg::Spread, env = "PLIMSOLL_START")]
    pub(crate) start: StartArg,

    /// Over how many plateaus to open the connections; costs are slopes over these
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000), env = "PLIMSOLL_STAGES")]
    pub(crate) stages: u32,

    /// Interval of each connection's heartbeat, before, while and after they speak, or `off`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_heartbeat, env = "PLIMSOLL_HEARTBEAT")]
    pub(crate) heartbeat: Heartbeat,

    /// How long to look at both sides after the talk
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_HOLD")]
    pub(crate) hold: f64,

    /// Latency within which 99% of the answers must come, counted from when their messages were due
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration, env = "PLIMSOLL_OBJECTIVE")]
    pub(crate) objective: f64,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The names of [`Arrivals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    Constant,
    Poisson,
}

impl From<ArrivalsArg> for Arrivals {
    fn from(arg: ArrivalsArg) -> Self {
        match arg {
            ArrivalsArg::Constant => Self::Constant,
            ArrivalsArg::Poisson => Self::Poisson,
        }
    }
}

/// The names of [`Start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StartArg {
    Spread,
    Together,
}

impl From<StartArg> for Start {
    fn from(arg: StartArg) -> Self {
        match arg {
            StartArg::Spread => Self::Spread,
            StartArg::Together => Self::Together,
        }
    }
}

//! What can be typed after `plimsoll hold`?

use clap::Args;
use model::units;

use super::{Heartbeat, RunArgs, parse_heartbeat, parse_positive_duration, parse_positive_rate};
use crate::call::CallArgs;

const HOLD_EXAMPLES: &str = "\
Examples:
  plimsoll hold ws://127.0.0.1:7080/ws --serve -c 50k --heartbeat 10s
  plimsoll hold redis://user:password@127.0.0.1:6379 -c 5000
  plimsoll hold tcp://127.0.0.1:11211 -c 5000 --send 'version\\r\\n' --expect 'VERSION '
  plimsoll hold https://10.0.0.5/health -c 60k --source 10.0.0.10-10.0.0.14 --ca ca.pem
  plimsoll hold tcp://127.0.0.1:7000 -c 100k --until-it-breaks --html report.html
  plimsoll hold sse://127.0.0.1:7080/events -c 10k --fail-if 'verify.latency.p99_ms > 50'
  plimsoll hold postgres://app:secret@10.0.0.7/shop -c 500 --heartbeat 30s
  plimsoll hold grpc://10.0.0.8 -c 5000 --heartbeat 5m --call chat.v1.Chat/Post --data '{\"text\": \"hi\"}'

The target is tcp, tls, http, https, ws, wss, sse, sses, redis, rediss, nats, mqtt, mqtts (?version=5 for
MQTT 5), postgres, mongodb, ignite (Apache Ignite 3), grpc or grpcs. Heartbeats: tcp and tls send 32 bytes
and expect them back (or --send and --expect); http and https a GET of the URL's path; ws, redis, nats, mqtt,
mongodb and grpc a ping, ignite its own; on sse, the server's comments and events are the heartbeats; postgres
an empty query.

Logins stand in the URL: SCHEME://USER:PASSWORD@HOST, characters such as / and @ written %2F and %40;
nats://TOKEN@HOST too. postgres://USER:PASSWORD@HOST/DATABASE?sslmode=disable|require|verify-full, directly
or through PgBouncer; sslmode=require encrypts without checking the certificate. nats goes on in TLS where the
server requires that, and with ?tls=true where it offers it.
mongodb://USER:PASSWORD@HOST/DATABASE?authSource=admin&tls=true, one server, by SCRAM-SHA-256.
No result shows a password; to keep it out of the list of processes as well, give the URL as PLIMSOLL_URL.";

#[derive(Debug, Args)]
#[command(after_help = HOLD_EXAMPLES)]
pub(crate) struct HoldArgs {
    /// The server under test: SCHEME://HOST[:PORT][/PATH]
    #[arg(env = "PLIMSOLL_URL")]
    pub(crate) url: String,

    /// How many connections to hold (10k, 1M); with --until-it-breaks, the most to try
    #[arg(short = 'c', long = "connections", value_name = "N", value_parser = units::parse_count, env = "PLIMSOLL_CONNECTIONS", required_unless_present = "until_it_breaks")]
    pub(crate) connections: Option<u64>,

    /// Over how many plateaus to open them; costs are slopes over these
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000), env = "PLIMSOLL_STAGES")]
    pub(crate) stages: u32,

    /// New connections per second; default: as fast as the target takes them
    #[arg(long, value_name = "CONN/S", value_parser = parse_positive_rate, env = "PLIMSOLL_RATE")]
    pub(crate) rate: Option<f64>,

    /// Interval of each connection's heartbeat, or `off`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_heartbeat, env = "PLIMSOLL_HEARTBEAT")]
    pub(crate) heartbeat: Heartbeat,

    /// How long to hold the last stage
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_HOLD")]
    pub(crate) hold: f64,

    /// Grow until a stage fails, then bisect, and confirm the line by a hold
    #[arg(long, env = "PLIMSOLL_UNTIL_IT_BREAKS")]
    pub(crate) until_it_breaks: bool,

    /// Latency within which every round trip of a verify pass must come back
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration, env = "PLIMSOLL_OBJECTIVE")]
    pub(crate) objective: f64,

    /// Verify each connection with a real operation beside its heartbeats: a query, a command, a message, as
    /// docs/protocols.md has it for the scheme; `default`: what the scheme has of its own
    #[arg(long, value_name = "OPERATION", env = "PLIMSOLL_VERIFY_WITH", conflicts_with = "call")]
    pub(crate) verify_with: Option<String>,

    #[command(flatten)]
    pub(crate) call: CallArgs,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

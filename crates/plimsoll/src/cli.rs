//! What can be typed? Every argument, with its help, its default and its `PLIMSOLL_*` variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use model::talk::{Arrivals, Start};
use model::units;

use crate::call::CallArgs;

/// How many client connections can a server hold, what does each one cost, what breaks first, and which setting lifts it?
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  plimsoll hold tcp://127.0.0.1:7000 --serve -c 100k      try it on the node that comes with it
  plimsoll hold wss://chat.internal/ws -c 20k --html report.html
  plimsoll hold http://127.0.0.1:8080/ --until-it-breaks -c 50k
  plimsoll storm tcp://127.0.0.1:7000 -c 20k              all at once, dropped, and all back
  plimsoll talk ws://127.0.0.1:7080/ws --serve -c 10k     all connect, then each says 20 messages
  plimsoll doctor -c 200k tcp://127.0.0.1:7000            what would break, before any load

Exit codes: 0 done; 1 it could not run; 2 wrong usage; 3 the target did not hold what was asked;
4 the measurement cannot be trusted; 99 a --fail-if held; 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How many connections can the target hold, at what cost each, and what ends it?
    Hold(Box<HoldArgs>),
    /// What if all clients come at one instant, are dropped, and all come back?
    Storm(Box<StormArgs>),
    /// Can they all speak? All connect, and then each says M messages at R per second.
    Talk(Box<TalkArgs>),
    /// Run the node: the reference messaging server, to try things on.
    Serve(ServeArgs),
    /// What would break for N connections, before any load? And which lines lift it?
    Doctor(DoctorArgs),
    /// On the target's host: let a run on another host see it from inside.
    Observe(ObserveArgs),
    /// What can break at all? How does it show, what lifts it, and how is it made to happen?
    Limits(LimitsArgs),
    /// Judge and draw a stored result again.
    Report(ReportArgs),
    /// Run the experiment that a TOML file describes.
    Run(FileArgs),
    /// One worker of an experiment; started by the coordinator.
    #[command(hide = true)]
    Worker,
    /// One process of the node; started by its supervisor.
    #[command(hide = true)]
    NodeProcess,
}

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

/// What every experiment that connects to a target has.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Addresses to connect from: ADDR,ADDR-ADDR,...; default: chosen by the plan
    #[arg(long, value_name = "ADDR,ADDR-ADDR", value_delimiter = ',', env = "PLIMSOLL_SOURCE")]
    pub(crate) source: Vec<String>,

    /// Worker processes, or `auto`: as many as CPUs and descriptor limit ask for
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parse_auto, env = "PLIMSOLL_WORKERS")]
    pub(crate) workers: Auto,

    /// Start the node beside the run, to serve this very URL
    #[arg(long, env = "PLIMSOLL_SERVE")]
    pub(crate) serve: bool,

    /// tcp, tls: what a round trip says instead of an echo request; \r \n \t \xNN are read
    #[arg(long, value_name = "TEXT", env = "PLIMSOLL_SEND", requires = "expect")]
    pub(crate) send: Option<String>,

    /// tcp, tls: what the answer to --send must start with
    #[arg(long, value_name = "TEXT", env = "PLIMSOLL_EXPECT", requires = "send")]
    pub(crate) expect: Option<String>,

    #[command(flatten)]
    pub(crate) sight: SightArgs,

    /// Exit with code 99 if this holds of the result: `failed > 0`, `verify.latency.p99_ms > 100`
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

/// How the target is seen from inside.
#[derive(Debug, Args)]
pub(crate) struct SightArgs {
    /// The target's process, if its port does not tell
    #[arg(long, value_name = "PID", env = "PLIMSOLL_PID", conflicts_with_all = ["process", "cgroup"])]
    pub(crate) pid: Option<u32>,

    /// The target's processes, by name
    #[arg(long, value_name = "NAME", env = "PLIMSOLL_PROCESS", conflicts_with = "cgroup")]
    pub(crate) process: Option<String>,

    /// The target's processes, by the cgroup they run in
    #[arg(long, value_name = "PATH", env = "PLIMSOLL_CGROUP")]
    pub(crate) cgroup: Option<String>,

    /// Where `plimsoll observe` runs on the target's host, if that is another one: http[s]://HOST:PORT
    #[arg(long, value_name = "URL", env = "PLIMSOLL_OBSERVER")]
    pub(crate) observer: Option<String>,

    /// The secret that the observer was started with; better in the environment than on the command line
    #[arg(long, value_name = "SECRET", env = "PLIMSOLL_OBSERVER_TOKEN", hide_env_values = true)]
    pub(crate) observer_token: Option<String>,

    /// The target's own metrics page, as Prometheus reads it: heap, event-loop lag; all of it if nothing else is seen
    #[arg(long, value_name = "URL", env = "PLIMSOLL_METRICS")]
    pub(crate) metrics: Option<String>,

    /// Trust this certificate authority too (PEM)
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_CA")]
    pub(crate) ca: Option<PathBuf>,

    /// Do not check certificates
    #[arg(long, env = "PLIMSOLL_INSECURE")]
    pub(crate) insecure: bool,
}

/// Where results go beside the terminal.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write the result as JSON; `-`: to standard output, instead of the text
    #[arg(long, value_name = "FILE|-", env = "PLIMSOLL_JSON")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as one self-contained HTML file
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_HTML")]
    pub(crate) html: Option<PathBuf>,

    /// Write the report as Markdown
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_MARKDOWN")]
    pub(crate) markdown: Option<PathBuf>,
}

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

const DOCTOR_EXAMPLES: &str = "\
Examples:
  plimsoll doctor -c 200k                                 this machine as a client
  plimsoll doctor -c 50k http://127.0.0.1:8080/           and the server that listens there
  plimsoll doctor -c 100k tcp://10.0.0.5:7000 --source 10.0.0.10-10.0.0.14
  plimsoll doctor -c 200k --emit sysctl tcp://127.0.0.1:7000 > /etc/sysctl.d/90-plimsoll.conf

Exit code 3 if something would stop below N, else 0; with --emit, 0 once the file is written.";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The server that would be tested; if it runs on this machine, its limits are read too
    pub(crate) url: Option<String>,

    /// How many connections it should hold
    #[arg(short = 'c', long = "connections", value_name = "N", value_parser = units::parse_count)]
    pub(crate) connections: u64,

    /// Addresses to connect from: ADDR,ADDR-ADDR,...
    #[arg(long, value_name = "ADDR,ADDR-ADDR", value_delimiter = ',')]
    pub(crate) source: Vec<String>,

    #[command(flatten)]
    pub(crate) sight: SightArgs,

    /// Write the file that would make N fit, with only the lines that differ from what is set now
    #[arg(long, value_name = "FORM")]
    pub(crate) emit: Option<Emit>,
}

/// A file of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// For /etc/sysctl.d/
    Sysctl,
    /// A drop-in for the server's unit
    Systemd,
    /// For /etc/security/limits.d/
    Limits,
}

const OBSERVE_EXAMPLES: &str = "\
Examples:
  plimsoll observe                                        for a run on this host, to try it
  PLIMSOLL_OBSERVER_TOKEN=secret plimsoll observe --listen 10.0.0.5:9600 --tls
  PLIMSOLL_OBSERVER_TOKEN=secret plimsoll hold ws://10.0.0.5/ws -c 50k --observer https://10.0.0.5:9600 --ca node-cert.pem
  curl -H 'Authorization: Bearer secret' 'http://10.0.0.5:9600/v1/observation?address=10.0.0.5:80'

It runs on the target's host, reads what a run on that host would read (/proc, cgroups, the kernel's sockets and
counters), and changes nothing. Start it as the target's user or as root, so that it may see the target.";

#[derive(Debug, Args)]
#[command(after_help = OBSERVE_EXAMPLES)]
pub(crate) struct ObserveArgs {
    /// Where to answer
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9600", env = "PLIMSOLL_LISTEN")]
    pub(crate) listen: SocketAddr,

    /// What whoever asks must know; needed unless only this host can reach it
    #[arg(long, value_name = "SECRET", env = "PLIMSOLL_OBSERVER_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,

    /// Speak TLS, with a certificate that it signs itself unless --cert names one
    #[arg(long, env = "PLIMSOLL_TLS")]
    pub(crate) tls: bool,

    /// Certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key", env = "PLIMSOLL_CERT")]
    pub(crate) cert: Option<PathBuf>,

    /// Private key for --cert (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "PLIMSOLL_KEY")]
    pub(crate) key: Option<PathBuf>,
}

const LIMITS_EXAMPLES: &str = "\
Examples:
  plimsoll limits                                         the whole catalogue
  plimsoll limits server.nofile                           what is known of one, and how to make it happen
  plimsoll limits server.nofile --induce                  makes it happen here, small and bounded

Exit code 0; with --induce, 1 if it was not met or cannot be made to happen here. 2 for an unknown ID.";

#[derive(Debug, Args)]
#[command(after_help = LIMITS_EXAMPLES)]
pub(crate) struct LimitsArgs {
    /// The limit, by its name in the catalogue
    pub(crate) id: Option<String>,

    /// Make it happen on this machine, and show what a run says of it
    #[arg(long, requires = "id")]
    pub(crate) induce: bool,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  plimsoll hold tcp://127.0.0.1:7000 --serve -c 10k --json run.json
  plimsoll report run.json                                the text again, by today's rules
  plimsoll report run.json --html report.html --markdown summary.md";

#[derive(Debug, Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct ReportArgs {
    /// A result that `--json` wrote; `-`: standard input
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

const RUN_EXAMPLES: &str = "\
A file names its experiment and URL; every other key is a flag of that experiment without its dashes:

  experiment = \"hold\"
  url = \"tcp://127.0.0.1:7000\"
  serve = true
  connections = \"100k\"
  heartbeat = \"10s\"
  fail-if = [\"failed > 0\"]
  html = \"report.html\"";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct FileArgs {
    /// The TOML file
    pub(crate) file: PathBuf,
}

/// A count, or the plan's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Auto(pub(crate) Option<u32>);

/// An interval in seconds, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Heartbeat(pub(crate) Option<f64>);

fn parse_auto(text: &str) -> Result<Auto, String> {
    if text == "auto" {
        return Ok(Auto(None));
    }
    match text.parse::<u32>() {
        Ok(n @ 1..=4096) => Ok(Auto(Some(n))),
        _ => Err("is neither `auto` nor a number from 1 to 4096".to_owned()),
    }
}

fn parse_heartbeat(text: &str) -> Result<Heartbeat, String> {
    if text == "off" {
        return Ok(Heartbeat(None));
    }
    parse_positive_duration(text).map(|s| Heartbeat(Some(s)))
}

fn parse_positive_duration(text: &str) -> Result<f64, String> {
    match units::parse_duration_seconds(text) {
        Ok(s) if s >= 0.001 => Ok(s),
        Ok(_) => Err("must be at least 1ms".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

fn parse_positive_rate(text: &str) -> Result<f64, String> {
    match units::parse_rate(text) {
        Ok(rate) if rate > 0.0 => Ok(rate),
        Ok(_) => Err("must be more than 0".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }
}

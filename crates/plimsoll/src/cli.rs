//! What can be typed? Every argument, with its help, its default and its `PLIMSOLL_*` variable.

mod ask;
mod churn;
mod hold;
mod serve;
mod storm;
mod sweep;
mod talk;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use model::{Metadata, units};

pub(crate) use ask::{DoctorArgs, Emit, FileArgs, LimitsArgs, ObserveArgs, ReportArgs};
pub(crate) use churn::ChurnArgs;
pub(crate) use hold::HoldArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use storm::StormArgs;
pub(crate) use sweep::SweepArgs;
pub(crate) use talk::TalkArgs;

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
  plimsoll sweep postgres://app@127.0.0.1/shop -c 8..1000 clients at work, more and more
  plimsoll churn mongodb://127.0.0.1 --min-pool 0,10,30   what a pool costs after idle
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
    /// Where does throughput stop growing? Clients at work, more and more of them.
    Sweep(Box<SweepArgs>),
    /// What does an application's pool cost after idle? Bursts, over a grid of its settings.
    Churn(Box<ChurnArgs>),
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

    /// http, ws, sse: a header field of each request; grpc: of --call. 'authorization=Bearer TOKEN'; may be given again
    #[arg(long, value_name = "NAME=VALUE", env = "PLIMSOLL_METADATA", hide_env_values = true)]
    pub(crate) metadata: Vec<Metadata>,

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

    /// The target's processes, by name: NAME,NAME for several programs
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        env = "PLIMSOLL_PROCESS",
        conflicts_with = "cgroup"
    )]
    pub(crate) process: Vec<String>,

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

    /// Servers to ask how many connections they count, in place of a postgres or redis target itself: those behind a
    /// load balancer; postgres://USER:PASSWORD@HOST:PORT (a PgBouncer too) or redis://...
    #[arg(long, value_name = "URL", value_delimiter = ' ', env = "PLIMSOLL_VIEWS", hide_env_values = true)]
    pub(crate) views: Vec<String>,

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

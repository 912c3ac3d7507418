//! What can be typed after the commands that load nothing: `doctor`, `observe`, `limits`, `report` and `run`?

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::units;

use super::{OutputArgs, SightArgs};

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

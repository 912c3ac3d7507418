//! How does the node run: by itself (`serve`), or beside a run (`hold --serve`)?

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use model::{Scheme, Target};
use node::{Certificate, Config, Listen, NodeError};
use rustix::process::{Pid, Signal, kill_process};

use crate::Failed;
use crate::cli::ServeArgs;
use crate::reach;

/// Where the node listens if nothing else is said.
const DEFAULTS: [&str; 6] = [
    "tcp://127.0.0.1:7000",
    "tls://127.0.0.1:7001",
    "grpc://127.0.0.1:7050",
    "grpcs://127.0.0.1:7051",
    "http://127.0.0.1:7080",
    "https://127.0.0.1:7081",
];

/// A share of its descriptors that a node's process leaves unused: connections fall to processes by a hash, so
/// that some get a few more than others.
const UNEVEN: f64 = 0.95;

/// Descriptors that a node's process needs for itself.
const NODE_DESCRIPTORS: u64 = 32;

/// `plimsoll serve`.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failed> {
    if args.beside {
        // However the run ends, its node ends with it.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    }
    let urls: Vec<String> =
        if args.urls.is_empty() { DEFAULTS.map(str::to_owned).to_vec() } else { args.urls.clone() };
    let mut targets = Vec::new();
    for url in &urls {
        let target = Target::parse(url).map_err(|e| Failed::Usage(e.to_string()))?;
        check_served(&target)?;
        targets.push(target);
    }
    let mut listen = Vec::new();
    for target in &targets {
        // Listening on a public address of one's own harms nobody.
        let addresses =
            reach::resolve(target, Some(&target.host)).map_err(|e| Failed::CannotRun(e.to_string()))?;
        listen.extend(addresses.into_iter().map(|address| Listen { scheme: target.scheme, address }));
    }
    let tls = listen.iter().any(|l| l.scheme.is_tls());
    let certificate = match (&args.cert, &args.key, tls) {
        (Some(cert), Some(key), _) => Some(node::load(cert, key)?),
        (_, _, true) => Some(own_certificate()?),
        _ => None,
    };
    let processes = args.processes.0.unwrap_or_else(|| match args.max_connections {
        Some(most) => processes_for(most),
        None => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
    });
    let config = Config {
        listen,
        processes,
        backlog: args.backlog,
        ballast_bytes: args.ballast,
        max_connections: args.max_connections,
        idle_timeout_seconds: args.idle_timeout,
        heartbeat_seconds: args.heartbeat,
        certificate,
    };
    let child = || {
        let mut command = ourselves();
        command.arg("node-process");
        command
    };
    node::run(&config, child, || announce(&targets, processes, tls && args.cert.is_none()))?;
    Ok(())
}

/// The node does not speak every protocol that there is a driver for.
pub(crate) fn check_served(target: &Target) -> Result<(), Failed> {
    let scheme = target.scheme;
    if scheme.is_served() {
        return Ok(());
    }
    Err(Failed::Usage(format!(
        "the node does not speak {scheme}; start a server of that kind, for example with targets/{scheme}.sh"
    )))
}

/// Says on standard output where the node listens; whoever reads may have gone, which is no error.
fn announce(targets: &[Target], processes: u32, own_certificate: bool) {
    let mut text = String::new();
    for target in targets {
        let paths = match target.scheme.plain() {
            Scheme::Http => "   (also /ws, /events, /healthz, /metrics)",
            Scheme::Grpc => "   (plimsoll.v1.Messaging, with health and reflection)",
            _ => "",
        };
        text += &format!("listening on {target}{paths}\n");
    }
    text += &format!("{processes} process{}; Ctrl-C ends it\n", if processes == 1 { "" } else { "es" });
    if own_certificate {
        text += &format!("certificate: --ca {}\n", own_ca_file().display());
    }
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Processes that the node needs for a number of connections.
pub(crate) fn processes_for(connections: u64) -> u32 {
    let limit = reactor::descriptors::hard_limit();
    let each = ((limit.saturating_sub(NODE_DESCRIPTORS)) as f64 * UNEVEN).max(1.0) as u64;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    connections.div_ceil(each).max(cpus.min(connections.div_ceil(500))).max(1) as u32
}

/// The node's own certificate, signed on first use.
pub(crate) fn own_certificate() -> Result<Certificate, NodeError> {
    node::self_signed(&state_directory())
}

/// The public part of that certificate, for `--ca`.
pub(crate) fn own_ca_file() -> PathBuf {
    state_directory().join(node::CA_FILE)
}

/// Where what outlives a run is kept: `$XDG_STATE_HOME/plimsoll`.
fn state_directory() -> PathBuf {
    let under = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    under("XDG_STATE_HOME")
        .or_else(|| under("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir)
        .join("plimsoll")
}

/// The command that starts this very program again.
pub(crate) fn ourselves() -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("plimsoll"));
    let mut command = Command::new(program);
    // Ctrl-C is for the coordinator: it tells its children in its own way.
    command.process_group(0);
    // A setting for the whole run must not be taken for a flag of a part of it.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PLIMSOLL_") {
            command.env_remove(name);
        }
    }
    command
}

/// The node, running beside a run; ended with it.
pub(crate) struct Beside {
    child: Child,
}

impl Beside {
    /// Starts the node to serve `target` for so many connections; returns once it listens.
    pub(crate) fn start(target: &Target, connections: u64, heartbeat: Option<f64>) -> Result<Self, Failed> {
        let mut command = ourselves();
        command.arg("serve").arg(target.to_string()).arg("--beside");
        command.arg("--processes").arg(processes_for(connections).to_string());
        if let Some(seconds) = heartbeat {
            command.arg("--heartbeat").arg(format!("{seconds}s"));
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failed::CannotRun(format!("cannot start the node: {e}")))?;
        let mut first = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut first);
        }
        let beside = Self { child };
        if first.starts_with("listening") {
            Ok(beside)
        } else {
            // It has said why on standard error.
            Err(Failed::CannotRun("--serve: the node did not start".to_owned()))
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the finder needs of a target: where it listens.
pub(crate) fn first_address(addresses: &[SocketAddr]) -> Result<SocketAddr, Failed> {
    addresses.first().copied().ok_or_else(|| Failed::CannotRun("the target has no address".to_owned()))
}

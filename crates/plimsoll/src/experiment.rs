//! What does every experiment do, from a command line to an exit code?

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use analysis::threshold;
use fleet::Stopper;
use model::{RunResult, Scheme, Spec, Target};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failed;
use crate::call::CallArgs;
use crate::cli::RunArgs;
use crate::conduct::Conductor;
use crate::live::Live;
use crate::outputs::Outputs;
use crate::progress::{Audience, Lines, Quiet};
use crate::way::Way;

/// The nice value of the coordinator's thread.
const LOOKER_PRIORITY: i32 = -10;

/// The least time that a handshake or round trip is given: a lost SYN is sent again after 1, 3 and 7 seconds.
pub(crate) const LEAST_PATIENCE_SECONDS: f64 = 10.0;

/// The target, and whether the thresholds ask for figures that there are: known before anything is begun.
pub(crate) fn checked_target(url: &str, fail_if: &[String]) -> Result<Target, Failed> {
    let target = Target::parse(url).map_err(|e| Failed::Usage(e.to_string()))?;
    threshold::check_paths(fail_if).map_err(|e| Failed::Usage(e.to_string()))?;
    Ok(target)
}

/// What the arguments that all experiments have in common ask for.
pub(crate) fn common_spec(target: Target, connections: u64, args: &RunArgs) -> Spec {
    Spec {
        sources: args.source.clone(),
        workers: args.workers.0,
        send: args.send.clone(),
        expect: args.expect.clone(),
        headers: if target.scheme.plain() == Scheme::Grpc { Vec::new() } else { args.metadata.clone() },
        ca: args.sight.ca.as_ref().map(|p| p.display().to_string()),
        insecure: args.sight.insecure,
        serve: args.serve,
        fail_if: args.fail_if.clone(),
        ..Spec::new(target, connections)
    }
}

/// Runs what is asked, from the outputs' opening to their writing; gives the exit code.
pub(crate) fn run(
    spec: Spec,
    experiment: &str,
    args: &RunArgs,
    call: Option<&CallArgs>,
) -> Result<u8, Failed> {
    let outputs = Outputs::open(&args.outputs)?;
    let mut way = Way::prepare(spec, args, call)?;
    listen_for_signals(vec![way.stopper()])?;
    prefer_to_look();
    let mut audience = audience(args.quiet, &way.spec);
    let seen = way.conductor(audience.as_mut()).map(Conductor::run).unwrap_or_default();
    drop(audience);
    let mut result = way.result(experiment, seen)?;
    conclude(&mut result);
    let code = result.exit_code();
    outputs.write(&result, args.quiet)?;
    Ok(code)
}

/// Draws all conclusions; what the eyes had to warn of stays.
pub(crate) fn conclude(result: &mut RunResult) {
    let seen = std::mem::take(&mut result.warnings);
    analysis::conclude(result);
    limits::judge(result);
    result.warnings.extend(seen);
}

/// Where that is allowed: who looks must not wait its turn behind a hundred busy processes that are looked at. The
/// workers, already started, keep the priority of everyone.
pub(crate) fn prefer_to_look() {
    let _ = rustix::process::setpriority_process(None, LOOKER_PRIORITY);
}

/// The command line, without its secrets.
pub(crate) fn command_line() -> Vec<String> {
    let words = std::env::args().skip(1).map(|word| model::without_password(&word));
    let mut words: Vec<String> = std::iter::once("plimsoll".to_owned()).chain(words).collect();
    for at in 0..words.len() {
        if words[at].starts_with("--observer-token=") {
            words[at] = "--observer-token=…".to_owned();
        } else if at > 0 && words[at - 1] == "--observer-token" {
            words[at] = "…".to_owned();
        } else if let Some(pair) = words[at].strip_prefix("--metadata=") {
            words[at] = format!("--metadata={}", named_only(pair));
        } else if at > 0 && words[at - 1] == "--metadata" {
            words[at] = named_only(&words[at]);
        }
    }
    words
}

/// `name=value` without the value.
fn named_only(pair: &str) -> String {
    format!("{}=…", pair.split('=').next().unwrap_or_default())
}

/// Who watches: the live view where the terminal can show it, else plain lines.
pub(crate) fn audience(quiet: bool, spec: &Spec) -> Box<dyn Audience> {
    if quiet {
        return Box::new(Quiet);
    }
    // The live view knows of stages, not of rounds.
    let live = if spec.storm.is_none() { Live::for_terminal(spec) } else { None };
    match live {
        Some(live) => Box::new(live),
        None => Box::new(Lines::default()),
    }
}

/// The first Ctrl-C (or SIGTERM) ends the run in good order, a second Ctrl-C at once.
pub(crate) fn listen_for_signals(stoppers: Vec<Stopper>) -> Result<(), Failed> {
    when_asked_to_end(move || stoppers.iter().for_each(Stopper::stop))
}

/// The same for a run without workers.
pub(crate) fn when_asked_to_end(end: impl FnOnce() + Send + 'static) -> Result<(), Failed> {
    let set_up = |e: std::io::Error| Failed::CannotRun(format!("cannot listen for signals: {e}"));
    let asked = Arc::new(AtomicBool::new(false));
    // Only a person asks twice: `timeout` sends its SIGTERM to the process and to its group.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&asked)).map_err(set_up)?;
    signal_hook::flag::register(SIGINT, asked).map_err(set_up)?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(set_up)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                end();
            }
        })
        .map_err(set_up)?;
    Ok(())
}

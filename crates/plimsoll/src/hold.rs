//! `plimsoll hold`: from a command line to a verdict; and what every experiment does on that way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use analysis::threshold;
use fleet::plan::{self, Means, Sources};
use fleet::{Assignment, Crew, Order};
use model::observation::{Observation, Settings};
use model::result::{RunResult, WorkerSeen};
use model::{FailureKind, Phase, Round, Spec, StormResult, Target};
use observe::{Finder, Observer, Root};
use reactor::socket;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::call::CallArgs;
use crate::cli::{HoldArgs, RunArgs, SightArgs};
use crate::conduct::{Conducted, Conductor};
use crate::live::Live;
use crate::outputs::Outputs;
use crate::progress::{Audience, Lines, Quiet};
use crate::serving::{self, Beside};
use crate::{Failed, call, operation, reach, sight};

/// The nice value of the coordinator's thread.
const LOOKER_PRIORITY: i32 = -10;

/// How many connections are asked for where none are named: as many as memory allows.
const NOT_SAID: u64 = 0;

/// The least time that a handshake or round trip is given: a lost SYN is sent again after 1, 3 and 7 seconds.
pub(crate) const LEAST_PATIENCE_SECONDS: f64 = 10.0;

/// Runs a hold; gives the exit code.
pub(crate) fn hold(args: &HoldArgs) -> Result<u8, Failed> {
    let target = checked_target(&args.url, &args.run)?;
    call::check(&args.call, &target)?;
    run(spec_of(args, target)?, "hold", &args.run, Some(&args.call))
}

/// The target, and whether the thresholds ask for figures that there are: known before anything is begun.
pub(crate) fn checked_target(url: &str, args: &RunArgs) -> Result<Target, Failed> {
    let target = Target::parse(url).map_err(|e| Failed::Usage(e.to_string()))?;
    threshold::check_paths(&args.fail_if).map_err(|e| Failed::Usage(e.to_string()))?;
    Ok(target)
}

/// What the arguments that all experiments have in common ask for.
pub(crate) fn common_spec(target: Target, connections: u64, args: &RunArgs) -> Spec {
    Spec {
        sources: args.source.clone(),
        workers: args.workers.0,
        send: args.send.clone(),
        expect: args.expect.clone(),
        ca: args.sight.ca.as_ref().map(|p| p.display().to_string()),
        insecure: args.sight.insecure,
        serve: args.serve,
        fail_if: args.fail_if.clone(),
        ..Spec::new(target, connections)
    }
}

/// Runs what is asked, from the outputs' opening to their writing; gives the exit code.
pub(crate) fn run(
    mut spec: Spec,
    experiment: &str,
    args: &RunArgs,
    call: Option<&CallArgs>,
) -> Result<u8, Failed> {
    if spec.serve {
        serving::check_served(&spec.target)?;
    }
    let outputs = Outputs::open(&args.outputs)?;
    let addresses = reach::resolve(&spec.target, args.allow_public.as_deref())
        .map_err(|e| Failed::CannotRun(e.to_string()))?;
    reactor::descriptors::raise_limit();
    let sources = reach::sources(&spec.target, serving::first_address(&addresses)?, &spec.sources)
        .map_err(|e| Failed::Usage(e.to_string()))?;
    if spec.connections == NOT_SAID {
        let find = Finder::Port(addresses.clone());
        let seen = Observer::new(Root::host(), std::process::id(), find).observe();
        spec.connections = most_that_memory_allows(&seen);
    }
    let ca_pem = trust(&spec, &args.sight)?;
    let beside = if spec.serve {
        Some(Beside::start(&spec.target, spec.connections, spec.heartbeat_seconds)?)
    } else {
        None
    };
    if let Some(operation) =
        call.map(|c| call::operation(c, &spec, &addresses, ca_pem.as_deref())).transpose()?
    {
        spec.operation = operation.or(spec.operation);
    }

    let mut eyes = sight::eyes(&args.sight, &addresses)?;
    let host = eyes.host();
    let before = eyes.observe();
    let settings = eyes.settings();
    let processes = eyes.target_processes();
    let first = serving::first_address(&addresses)?;
    let means = means(&settings, sources, !spec.sources.is_empty(), first, host.cpus, &before);
    let plan = plan::plan(&spec, &means).map_err(|short| {
        Failed::CannotRun(short.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    let settings = with_plan(&settings, &means, &plan.addresses);

    let started_at = jiff::Timestamp::now();
    let mut crew = Crew::start(plan.workers, || {
        let mut command = serving::ourselves();
        command.arg("worker");
        command
    })
    .map_err(|e| Failed::CannotRun(format!("cannot start the workers: {e}")))?;
    listen_for_signals(&crew)?;
    let mut workers = Vec::new();
    for (index, sources) in (0..plan.workers).zip(plan.sources) {
        let capacity = Spec::share(plan.connections, index, plan.workers).max(1);
        workers.push(WorkerSeen {
            id: index,
            host: host.name.clone(),
            processes: 1,
            pid: crew.pid(index),
            sources: sources.iter().filter_map(|s| s.address).map(|a| a.to_string()).collect(),
            share: capacity,
            died: None,
        });
        let assignment = Assignment {
            spec: spec.clone(),
            index,
            workers: plan.workers,
            capacity,
            addresses: addresses.clone(),
            sources,
            window: plan.window,
            ca_pem: ca_pem.clone(),
        };
        crew.tell(index, &Order::Start(Box::new(assignment)));
    }
    // Where that is allowed: who looks must not wait its turn behind a hundred busy processes that are looked at. The
    // workers, already started, keep the priority of everyone.
    let _ = rustix::process::setpriority_process(None, LOOKER_PRIORITY);
    let mut audience = audience(args.quiet, &spec);
    let conductor = Conductor::new(&spec, crew, plan.workers, &mut eyes, audience.as_mut(), before);
    let seen = conductor.run();
    drop(beside);
    drop(audience);
    let warnings = eyes.take_warnings();

    for (&index, how) in &seen.died {
        workers[index as usize].died = Some(how.clone());
    }
    if let Some(why) = could_not_run(&seen) {
        return Err(Failed::CannotRun(format!("{}: {why}", spec.target)));
    }
    let mut result = RunResult::new(experiment, spec);
    result.started_at = started_at.to_string();
    result.command = command_line();
    result.host = host;
    result.workers = workers;
    result.settings = settings;
    result.target.addresses = addresses.iter().map(ToString::to_string).collect();
    result.target.processes = processes;
    result.target.host = eyes.target_host();
    take_over(&mut result, seen);
    analysis::conclude(&mut result);
    limits::judge(&mut result);
    result.warnings.extend(warnings);
    let code = result.exit_code();
    outputs.write(&result, args.quiet)?;
    Ok(code)
}

/// The command line, without its secrets.
fn command_line() -> Vec<String> {
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
fn audience(quiet: bool, spec: &Spec) -> Box<dyn Audience> {
    if quiet {
        return Box::new(Quiet);
    }
    // The live view knows of stages, not of rounds.
    match spec.storm {
        None => match Live::for_terminal(spec) {
            Some(live) => Box::new(live),
            None => Box::new(Lines::default()),
        },
        Some(_) => Box::new(Lines::default()),
    }
}

/// Reads the arguments into what is asked.
fn spec_of(args: &HoldArgs, target: Target) -> Result<Spec, Failed> {
    if args.connections == Some(0) {
        return Err(Failed::Usage("-c 0: a hold needs at least one connection".to_owned()));
    }
    Ok(Spec {
        operation: args
            .verify_with
            .as_deref()
            .map(|text| operation::said(&target, Some(text)))
            .transpose()?,
        stages: args.stages,
        rate_per_second: args.rate,
        heartbeat_seconds: args.heartbeat.0,
        hold_seconds: args.hold,
        until_it_breaks: args.until_it_breaks,
        objective_seconds: args.objective,
        patience_seconds: LEAST_PATIENCE_SECONDS.max(2.0 * args.objective),
        ..common_spec(target, args.connections.unwrap_or(NOT_SAID), &args.run)
    })
}

/// How many loopback connections free memory allows at the most: the end of a search that names none.
fn most_that_memory_allows(seen: &Observation) -> u64 {
    let available = seen.host.memory_available_bytes.unwrap_or(1 << 30);
    (available / plan::LOOPBACK_BYTES / 1000 * 1000).max(1000)
}

/// Authorities to trust besides the system's: the one that was named, and the node's own if it runs beside.
fn trust(spec: &Spec, args: &SightArgs) -> Result<Option<String>, Failed> {
    let mut pem = sight::authority(args)?;
    if spec.serve && spec.target.scheme.is_tls() {
        pem.get_or_insert_default().push_str(&serving::own_certificate()?.chain_pem);
    }
    Ok(pem)
}

/// What the plan is made from.
pub(crate) fn means<'a>(
    settings: &'a Settings,
    sources: Sources,
    sources_given: bool,
    to: SocketAddr,
    cpus: u32,
    before: &Observation,
) -> Means<'a> {
    Means {
        settings,
        sources,
        sources_given,
        ports_can_be_chosen: socket::can_choose_port(to),
        cpus,
        memory_available_bytes: before.host.memory_available_bytes,
        files: before.host.files,
        backlog: before.listener.as_ref().map(|l| (l.backlog, l.sockets)),
    }
}

/// Settings with what the plan knows of sources and workers.
pub(crate) fn with_plan(settings: &Settings, means: &Means<'_>, addresses: &[std::net::IpAddr]) -> Settings {
    Settings {
        sources: addresses.iter().map(ToString::to_string).collect(),
        connections_per_source: plan::per_source(means),
        sources_available: plan::sources_available(means),
        destinations: 1,
        worker_base_descriptors: plan::BASE_DESCRIPTORS,
        ..settings.clone()
    }
}

/// The first Ctrl-C (or SIGTERM) ends the run in good order, a second Ctrl-C at once.
fn listen_for_signals(crew: &Crew) -> Result<(), Failed> {
    let set_up = |e: std::io::Error| Failed::CannotRun(format!("cannot listen for signals: {e}"));
    let asked = Arc::new(AtomicBool::new(false));
    // Only a person asks twice: `timeout` sends its SIGTERM to the process and to its group.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&asked)).map_err(set_up)?;
    signal_hook::flag::register(SIGINT, asked).map_err(set_up)?;
    let stopper = crew.stopper();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(set_up)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                stopper.stop();
            }
        })
        .map_err(set_up)?;
    Ok(())
}

/// Why nothing could be measured at all: the very first connection found nobody.
fn could_not_run(seen: &Conducted) -> Option<String> {
    let counters = &seen.total.counters;
    if counters.opened > 0 || seen.interrupted {
        return None;
    }
    let (kind, _) = counters.failed.count.iter().next()?;
    let hint = match kind {
        FailureKind::Refused => {
            "the first connection was refused: nothing listens there; start the target first"
        }
        FailureKind::Unreachable => "the first connection found no route",
        FailureKind::ConnectTimeout => {
            "the first connection was never answered: a firewall, or a full accept queue"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Takes what was seen into the result.
fn take_over(result: &mut RunResult, seen: Conducted) {
    let counters = seen.total.counters;
    result.seconds = seen.seconds;
    result.before = seen.before;
    result.after = seen.after;
    result.stages = seen.stages;
    result.series = seen.series;
    result.interrupted = seen.interrupted;
    result.connections.opened = counters.opened;
    result.connections.ready = counters.became_ready;
    result.connections.held = seen.held;
    result.connections.verified = seen.verified;
    if result.spec.storm.is_some() {
        // Each round has the same connections: the whole run counts as its worst round.
        let worst = |of: fn(&Round) -> u64| seen.rounds.iter().map(of).min().unwrap_or(0);
        result.connections.ready = worst(|r| r.ready);
        result.connections.held = worst(|r| r.held);
        result.connections.verified = worst(|r| r.ready);
        result.storm = Some(StormResult { rounds: seen.rounds });
    }
    result.talk = seen.talk;
    result.connections.set_failed(&counters.failed);
    result.connections.closed_age = seen.total.closed_age.summary();
    result.connections.closed_quiet = seen.total.closed_quiet.summary();
    result.establish.seconds = seen.establish_seconds;
    result.establish.rate_per_second = rate(counters.became_ready, seen.establish_seconds);
    for phase in Phase::ALL {
        if let Some(latency) = seen.total.phases[phase as usize].summary() {
            result.establish.phases.insert(phase.id().to_owned(), latency);
        }
    }
    result.heartbeat.sent = counters.beats_sent;
    result.heartbeat.answered = counters.beats_answered;
    result.heartbeat.missed = counters.beats_missed;
    result.heartbeat.latency = seen.total.beats.summary();
    result.verify.seconds = seen.verify_seconds;
    result.verify.rate_per_second = rate(seen.verified, seen.verify_seconds);
    result.verify.latency = seen.verify_latency.summary();
}

fn rate(n: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { n as f64 / seconds } else { 0.0 }
}

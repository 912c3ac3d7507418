//! One way to a target, made ready: its addresses, the plan, the workers, and the eyes that look at it.

use std::net::SocketAddr;

use fleet::plan::{self, Means, Sources};
use fleet::{Assignment, Crew, Order, Stopper};
use model::observation::{Observation, Settings};
use model::result::{Host, ProcessSeen, RunResult, WorkerSeen};
use model::{FailureKind, Phase, Round, Spec, StormResult, SweepResult};
use observe::{Eyes, Finder, Observer, Root};
use reactor::socket;

use crate::call::CallArgs;
use crate::cli::{RunArgs, SightArgs};
use crate::conduct::{Conducted, Conductor};
use crate::experiment::command_line;
use crate::progress::Audience;
use crate::serving::{self, Beside};
use crate::{Failed, call, operation, reach, sight};

/// How many connections are asked for where none are named: as many as memory allows.
pub(crate) const AS_MANY_AS_MEMORY_ALLOWS: u64 = 0;

/// All that one run against one target needs, before its first connection.
pub(crate) struct Way {
    pub(crate) spec: Spec,
    crew: Option<Crew>,
    stopper: Stopper,
    plan: plan::Plan,
    eyes: Eyes,
    before: Observation,
    started_at: jiff::Timestamp,
    host: Host,
    settings: Settings,
    processes: Vec<ProcessSeen>,
    addresses: Vec<SocketAddr>,
    workers: Vec<WorkerSeen>,
    /// Ends with it.
    beside: Option<Beside>,
}

impl Way {
    /// Plans, starts the workers and has a first look; nothing is connected yet.
    ///
    /// # Errors
    /// Whatever keeps the run from beginning.
    pub(crate) fn prepare(mut spec: Spec, args: &RunArgs, call: Option<&CallArgs>) -> Result<Self, Failed> {
        let called = call.is_some_and(|call| call.call.is_some());
        operation::check_headers(&spec.target, &args.metadata, called)?;
        if spec.serve {
            serving::check_served(&spec.target)?;
        }
        let addresses = reach::resolve(&spec.target, args.allow_public.as_deref())
            .map_err(|e| Failed::CannotRun(e.to_string()))?;
        reactor::descriptors::raise_limit();
        let first = serving::first_address(&addresses)?;
        let sources =
            reach::sources(&spec.target, first, &spec.sources).map_err(|e| Failed::Usage(e.to_string()))?;
        if spec.connections == AS_MANY_AS_MEMORY_ALLOWS {
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
        if let Some(asked) = call {
            let called = call::operation(asked, &args.metadata, &spec, &addresses, ca_pem.as_deref())?;
            spec.operation = match called {
                Some(called) => Some(called),
                None => operation::with_body(&spec.target, spec.operation.take(), asked)?,
            };
        }

        let mut eyes = sight::eyes(&args.sight, &spec.target, &addresses)?;
        let host = eyes.host();
        let mut before = eyes.observe();
        before.servers = eyes.servers();
        let settings = eyes.settings();
        let processes = eyes.target_processes();
        let means = means(&settings, sources, !spec.sources.is_empty(), first, host.cpus, &before);
        let plan = plan::plan(&spec, &means).map_err(|short| {
            Failed::CannotRun(short.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        })?;
        let settings = with_plan(&settings, &means, &plan.addresses);

        let started_at = jiff::Timestamp::now();
        let crew = Crew::start(plan.workers, || {
            let mut command = serving::ourselves();
            command.arg("worker");
            command
        })
        .map_err(|e| Failed::CannotRun(format!("cannot start the workers: {e}")))?;
        let mut way = Self {
            stopper: crew.stopper(),
            crew: Some(crew),
            workers: Vec::new(),
            spec,
            plan,
            eyes,
            before,
            started_at,
            host,
            settings,
            processes,
            addresses,
            beside,
        };
        way.assign(ca_pem.as_ref());
        Ok(way)
    }

    /// Gives each worker its share.
    fn assign(&mut self, ca_pem: Option<&String>) {
        let Some(crew) = &mut self.crew else { return };
        let plan = &self.plan;
        for (index, sources) in (0..plan.workers).zip(&plan.sources) {
            let capacity = Spec::share(plan.connections, index, plan.workers).max(1);
            self.workers.push(WorkerSeen {
                id: index,
                host: self.host.name.clone(),
                processes: 1,
                pid: crew.pid(index),
                sources: sources.iter().filter_map(|s| s.address).map(|a| a.to_string()).collect(),
                share: capacity,
                died: None,
            });
            let assignment = Assignment {
                spec: self.spec.clone(),
                index,
                workers: plan.workers,
                capacity,
                addresses: self.addresses.clone(),
                sources: sources.clone(),
                window: plan.window,
                ca_pem: ca_pem.cloned(),
            };
            crew.tell(index, &Order::Start(Box::new(assignment)));
        }
    }

    /// What stops it.
    pub(crate) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Who conducts the workers: to be had once.
    pub(crate) fn conductor<'a>(&'a mut self, audience: &'a mut dyn Audience) -> Option<Conductor<'a>> {
        let crew = self.crew.take()?;
        let (eyes, before) = (&mut self.eyes, self.before.clone());
        Some(Conductor::new(&self.spec, crew, self.plan.workers, eyes, audience, before))
    }

    /// The result of what was conducted, nothing concluded from it yet.
    ///
    /// # Errors
    /// If the very first connection found nobody.
    pub(crate) fn result(mut self, experiment: &str, seen: Conducted) -> Result<RunResult, Failed> {
        drop(self.beside);
        for (&index, how) in &seen.died {
            self.workers[index as usize].died = Some(how.clone());
        }
        if let Some(why) = could_not_run(&seen) {
            return Err(Failed::CannotRun(format!("{}: {why}", self.spec.target)));
        }
        let mut result = RunResult::new(experiment, self.spec);
        result.started_at = self.started_at.to_string();
        result.command = command_line();
        result.host = self.host;
        result.workers = self.workers;
        result.settings = self.settings;
        result.target.addresses = self.addresses.iter().map(ToString::to_string).collect();
        result.target.processes = self.processes;
        result.target.host = self.eyes.target_host();
        take_over(&mut result, seen);
        result.warnings = self.eyes.take_warnings();
        Ok(result)
    }
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
    if result.spec.sweep.is_some() {
        result.sweep = Some(SweepResult { points: seen.points, ..SweepResult::default() });
    }
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

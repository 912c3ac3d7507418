//! `plimsoll sweep`: where does throughput stop growing?

use std::cell::RefCell;

use model::{Spec, SweepSpec, Target};

use crate::call::CallArgs;
use crate::cli::SweepArgs;
use crate::conduct::{Conductor, sweep};
use crate::experiment::{
    audience, checked_target, common_spec, conclude, listen_for_signals, prefer_to_look,
};
use crate::outputs::Outputs;
use crate::progress::{Audience, Progress};
use crate::way::Way;
use crate::{Failed, call, init, workload};

/// How long an operation may take: a queue in front of a saturated server may be long, and is what a sweep is after.
const PATIENCE_SECONDS: f64 = 120.0;

/// Runs a sweep; gives the exit code.
pub(crate) fn sweep(args: &SweepArgs) -> Result<u8, Failed> {
    if args.label.len() > args.url.len() {
        let (labels, urls) = (args.label.len(), args.url.len());
        return Err(Failed::Usage(format!("--label was given {labels} times, but there are {urls} URLs")));
    }
    if args.workload.init {
        return init::init(args).map(|()| 0);
    }
    let mut specs = Vec::new();
    for (index, url) in args.url.iter().enumerate() {
        let target = checked_target(url, &args.run.fail_if)?;
        call::check(&args.call, &target)?;
        specs.push(spec_of(args, index, target)?);
    }
    let outputs = Outputs::open(&args.run.outputs)?;
    let call: &CallArgs = &args.call;
    let prepared = specs.into_iter().map(|spec| Way::prepare(spec, &args.run, Some(call)));
    let mut ways = prepared.collect::<Result<Vec<_>, _>>()?;
    listen_for_signals(ways.iter().map(Way::stopper).collect())?;
    prefer_to_look();

    let shared = RefCell::new(audience(args.run.quiet, &ways[0].spec));
    let several = ways.len() > 1;
    let mut audiences: Vec<OneOf<'_>> =
        ways.iter().map(|way| OneOf { shared: &shared, name: several.then(|| label(&way.spec)) }).collect();
    let conductors: Vec<Conductor<'_>> =
        ways.iter_mut().zip(&mut audiences).filter_map(|(way, audience)| way.conductor(audience)).collect();
    let seen = sweep::in_turns(conductors);
    drop(audiences);
    let results = ways.into_iter().zip(seen).map(|(way, seen)| way.result("sweep", seen));
    let mut results = results.collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut result = results.next().ok_or_else(|| Failed::Usage("no URL".to_owned()))?;
    result.beside = results.collect();
    conclude(&mut result);
    let code = result.exit_code();
    outputs.write(&result, args.run.quiet)?;
    Ok(code)
}

fn label(spec: &Spec) -> String {
    spec.sweep.as_ref().map(|sweep| sweep.label.clone()).unwrap_or_default()
}

/// Reads the arguments into what is asked of one of the ways.
fn spec_of(args: &SweepArgs, index: usize, target: Target) -> Result<Spec, Failed> {
    let clients = args.connections.counts.clone();
    let most = clients.iter().copied().max().unwrap_or(1);
    let label = args
        .label
        .get(index)
        .cloned()
        .unwrap_or_else(|| format!("{}://{}", target.scheme, target.authority()));
    Ok(Spec {
        operation: Some(workload::operation(&args.workload, &target, args.message.as_deref(), &args.run)?),
        stages: 1,
        heartbeat_seconds: None,
        hold_seconds: args.measure,
        objective_seconds: args.objective,
        patience_seconds: PATIENCE_SECONDS.max(2.0 * args.objective),
        sweep: Some(SweepSpec {
            clients,
            adaptive: args.connections.adaptive,
            warm_up_seconds: args.warm_up,
            measure_seconds: args.measure,
            repeat: args.repeat,
            rate_per_second: args.rate,
            arrivals: args.arrivals.into(),
            label,
        }),
        ..common_spec(target, most, &args.run)
    })
}

/// Whoever watches all ways, told of one of them.
struct OneOf<'a> {
    shared: &'a RefCell<Box<dyn Audience>>,
    /// What to call it, if there are several.
    name: Option<String>,
}

impl OneOf<'_> {
    fn named(&self, line: &str) -> String {
        self.name.as_ref().map_or(line.to_owned(), |name| format!("{line}  [{name}]"))
    }
}

impl Audience for OneOf<'_> {
    fn moment(&mut self, progress: &Progress<'_>) {
        self.shared.borrow_mut().moment(progress);
    }

    fn stage(&mut self, passed: bool, line: &str) {
        self.shared.borrow_mut().stage(passed, &self.named(line));
    }

    fn say(&mut self, line: &str) {
        self.shared.borrow_mut().say(&self.named(line));
    }

    fn end(&mut self) {
        self.shared.borrow_mut().end();
    }
}

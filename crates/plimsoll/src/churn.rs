//! `plimsoll churn`: what does an application's pool cost after idle?

mod grid;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{ChurnSpec, RunResult, Spec, Target};
use pools::{Server, Tls};
use reactor::clock;

use crate::cli::ChurnArgs;
use crate::experiment::{checked_target, command_line, conclude, prefer_to_look, when_asked_to_end};
use crate::outputs::Outputs;
use crate::progress::{Audience, Lines, Quiet};
use crate::{Failed, reach, serving, sight};
use grid::Grid;

/// More cells than this are no table that anybody reads.
const MOST_CELLS: usize = 200;

/// Runs a churn; gives the exit code.
pub(crate) fn churn(args: &ChurnArgs) -> Result<u8, Failed> {
    let target = checked_target(&args.url, &args.fail_if)?;
    let asked = asked(args)?;
    let spec = spec_of(args, target, &asked)?;
    let outputs = Outputs::open(&args.outputs)?;
    let mut result = run(spec, &asked, args)?;
    conclude(&mut result);
    let code = result.exit_code();
    outputs.write(&result, args.quiet)?;
    Ok(code)
}

/// Reads the arguments into the grid and its traffic.
fn asked(args: &ChurnArgs) -> Result<ChurnSpec, Failed> {
    let least = args.max_pool.iter().min().copied().unwrap_or(1);
    if let Some(min) = args.min_pool.iter().find(|min| **min > least) {
        return Err(Failed::Usage(format!(
            "--min-pool {min} is more than --max-pool {least}: each minimum meets each maximum, so the largest minimum may \
             not pass the smallest maximum"
        )));
    }
    Ok(ChurnSpec {
        min_pool: args.min_pool.clone(),
        max_pool: args.max_pool.clone(),
        idle_timeout_seconds: args.idle_timeout.clone(),
        max_lifetime_seconds: args.max_lifetime.clone(),
        wait_timeout_seconds: args.wait_timeout,
        burst: args.burst,
        idle_seconds: args.idle,
        bursts: args.bursts,
        network_delay_seconds: args.network_delay.clone(),
        objective_seconds: args.objective,
        instances: args.instances,
        server_limit: args.server_limit,
    })
}

/// Reads the arguments into what is asked.
fn spec_of(args: &ChurnArgs, target: Target, asked: &ChurnSpec) -> Result<Spec, Failed> {
    let facts = pools::facts(target.scheme).map_err(|e| Failed::Usage(e.to_string()))?;
    let cells = grid::cells(asked, &facts);
    if cells > MOST_CELLS {
        return Err(Failed::Usage(format!(
            "{cells} cells are more than the {MOST_CELLS} that a table can show: give fewer values"
        )));
    }
    let most = asked.max_pool.iter().max().copied().unwrap_or(1);
    Ok(Spec {
        stages: 1,
        heartbeat_seconds: None,
        hold_seconds: 0.0,
        objective_seconds: args.objective,
        ca: args.sight.ca.as_ref().map(|path| path.display().to_string()),
        insecure: args.sight.insecure,
        fail_if: args.fail_if.clone(),
        churn: Some(asked.clone()),
        ..Spec::new(target, u64::from(most))
    })
}

/// Runs the grid, and tells what was seen; nothing is concluded yet.
fn run(spec: Spec, asked: &ChurnSpec, args: &ChurnArgs) -> Result<RunResult, Failed> {
    let addresses = reach::resolve(&spec.target, args.allow_public.as_deref())
        .map_err(|e| Failed::CannotRun(e.to_string()))?;
    reactor::descriptors::raise_limit();
    let address = serving::first_address(&addresses)?;
    let server = Server { target: spec.target.clone(), address, tls: tls(&spec, args)? };
    let facts = pools::facts(spec.target.scheme).map_err(|e| Failed::Usage(e.to_string()))?;
    let mut eyes = sight::eyes(&args.sight, &spec.target, &addresses)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    when_asked_to_end(move || stop.store(true, Ordering::Relaxed))?;
    prefer_to_look();

    let mut result = RunResult::new("churn", spec);
    result.started_at = jiff::Timestamp::now().to_string();
    let began = clock::now();
    result.command = command_line();
    result.host = eyes.host();
    result.before = eyes.observe();
    result.settings = eyes.settings();
    result.target.addresses = addresses.iter().map(ToString::to_string).collect();
    result.target.processes = eyes.target_processes();
    result.target.host = eyes.target_host();
    let mut audience: Box<dyn Audience> = if args.quiet { Box::new(Quiet) } else { Box::<Lines>::default() };
    let grid = Grid { asked, facts, server, eyes: &mut eyes, audience: audience.as_mut(), stopped: &stopped };
    result.churn = Some(grid.run()?);
    result.interrupted = stopped.load(Ordering::Relaxed);
    result.after = eyes.observe();
    result.seconds = clock::to_seconds(clock::now() - began);
    result.warnings = eyes.take_warnings();
    Ok(result)
}

/// What a TLS client of the target believes; `None`: its connections have no TLS.
fn tls(spec: &Spec, args: &ChurnArgs) -> Result<Option<Tls>, Failed> {
    let target = &spec.target;
    let Some(insecure) = target.encrypted(spec.insecure) else { return Ok(None) };
    let pem = sight::authority(&args.sight)?;
    let trust = worker::trust::client(target, pem.as_deref(), insecure)?;
    Ok(Some(Tls { config: trust.config, name: trust.name, ca: args.sight.ca.clone(), insecure }))
}

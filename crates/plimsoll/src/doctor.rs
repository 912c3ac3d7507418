//! `plimsoll doctor`: what would break for N connections, before any load?

use std::net::SocketAddr;

use fleet::plan::{self, Sources};
use model::result::RunResult;
use model::{Spec, Target, units};

use crate::cli::DoctorArgs;
use crate::outputs::terminal_style;
use crate::way::{means, with_plan};
use crate::{Failed, emit, reach, sight};

/// Prints the ladder from settings alone; exit code 3 if something would stop below what is asked.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<u8, Failed> {
    if args.connections == 0 {
        return Err(Failed::Usage("-c 0: name how many connections there should be".to_owned()));
    }
    // Without a URL, only the client's side is asked about.
    let url = args.url.as_deref().unwrap_or("tcp://127.0.0.1:1");
    let target = Target::parse(url).map_err(|e| Failed::Usage(e.to_string()))?;
    // At most a server's own view is asked for, so any address may be named.
    let addresses: Vec<SocketAddr> =
        reach::resolve(&target, Some(&target.host)).map_err(|e| Failed::CannotRun(e.to_string()))?;
    let Some(&first) = addresses.first() else {
        return Err(Failed::CannotRun("the target has no address".to_owned()));
    };
    let sources = reach::sources(&target, first, &args.source).map_err(|e| Failed::Usage(e.to_string()))?;
    let mut eyes = sight::eyes(&args.sight, &target, &addresses)?;
    // A stranger's server is not even asked, unless it was named for that.
    let may_ask = !args.sight.views.is_empty() || reach::resolve(&target, None).is_ok();
    let mut result = RunResult::new("doctor", spec(target, args));
    if args.url.is_none() {
        result.target.url = "URL".to_owned();
    }
    result.host = eyes.host();
    result.before = eyes.observe();
    if may_ask {
        drop(eyes.take_warnings());
        result.before.servers = eyes.servers();
        result.warnings = eyes.take_warnings();
    }
    result.target.addresses = addresses.iter().map(ToString::to_string).collect();
    result.target.processes = eyes.target_processes();
    result.target.host = eyes.target_host();
    let settings = eyes.settings();
    let means = means(&settings, sources, !args.source.is_empty(), first, result.host.cpus, &result.before);
    let used = match &means.sources {
        Sources::These(list) => list.clone(),
        Sources::Loopback => Vec::new(),
    };
    result.settings = with_plan(&settings, &means, &used);
    let shortfalls = plan::plan(&result.spec, &means).err().unwrap_or_default();
    if args.url.is_none() {
        result.settings.target_hidden =
            Some("no server was named; give its URL to see its limits too".to_owned());
    }
    if let Some(form) = args.emit {
        print_file(&emit::file(form, &limits::lifting(&result), &result));
        return Ok(0);
    }
    result.limits = limits::doctor(&result);
    print(&result, &shortfalls, args.url.is_some());
    let stops = result.limits.iter().any(|f| f.ceiling_connections.is_some_and(|c| c < args.connections));
    Ok(if stops || !shortfalls.is_empty() { 3 } else { 0 })
}

#[expect(clippy::print_stdout, reason = "the file goes to standard output")]
fn print_file(file: &str) {
    print!("{file}");
}

#[expect(clippy::print_stdout, reason = "the answer goes to standard output")]
fn print(result: &RunResult, shortfalls: &[plan::Shortfall], with_target: bool) {
    print!("{}", report::terminal::ladder_alone(result, terminal_style()));
    let fits =
        result.limits.iter().all(|f| f.ceiling_connections.is_none_or(|c| c >= result.spec.connections));
    if fits && shortfalls.is_empty() {
        let n = units::count(result.spec.connections);
        println!("\n{n} connections fit, as far as settings tell; hold them to be sure.");
    }
    if !shortfalls.is_empty() {
        println!("\nThe generator on this machine:");
        for short in shortfalls {
            println!("  {}", short.to_string().replace('\n', "\n  "));
        }
    }
    for why in &result.warnings {
        println!("\nThe server's own count is unknown: {why}.");
    }
    if with_target && let Some(why) = &result.settings.target_hidden {
        println!("\nThe server's own limits are unknown: {why}.");
    }
}

fn spec(target: Target, args: &DoctorArgs) -> Spec {
    Spec {
        stages: 1,
        heartbeat_seconds: None,
        hold_seconds: 0.0,
        sources: args.source.clone(),
        ..Spec::new(target, args.connections)
    }
}

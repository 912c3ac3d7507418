//! `plimsoll hold`: how many connections can the target hold?

use model::{Spec, Target};

use crate::cli::HoldArgs;
use crate::experiment::{self, LEAST_PATIENCE_SECONDS, checked_target, common_spec};
use crate::way::AS_MANY_AS_MEMORY_ALLOWS;
use crate::{Failed, call, operation};

/// Runs a hold; gives the exit code.
pub(crate) fn hold(args: &HoldArgs) -> Result<u8, Failed> {
    let target = checked_target(&args.url, &args.run.fail_if)?;
    call::check(&args.call, &target)?;
    experiment::run(spec_of(args, target)?, "hold", &args.run, Some(&args.call))
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
        ..common_spec(target, args.connections.unwrap_or(AS_MANY_AS_MEMORY_ALLOWS), &args.run)
    })
}

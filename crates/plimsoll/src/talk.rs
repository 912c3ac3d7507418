//! `plimsoll talk`: can they all speak?

use model::{Spec, TalkSpec, Target};

use crate::cli::TalkArgs;
use crate::experiment::{LEAST_PATIENCE_SECONDS, checked_target, common_spec, run};
use crate::{Failed, call, operation};

/// Runs a talk; gives the exit code.
pub(crate) fn talk(args: &TalkArgs) -> Result<u8, Failed> {
    let target = checked_target(&args.url, &args.run.fail_if)?;
    call::check(&args.call, &target)?;
    run(spec_of(args, target)?, "talk", &args.run, Some(&args.call))
}

/// Reads the arguments into what is asked.
fn spec_of(args: &TalkArgs, target: Target) -> Result<Spec, Failed> {
    if args.connections == 0 {
        return Err(Failed::Usage("-c 0: a talk needs at least one connection".to_owned()));
    }
    Ok(Spec {
        operation: Some(operation::said(&target, args.message.as_deref())?),
        stages: args.stages,
        heartbeat_seconds: args.heartbeat.0,
        hold_seconds: args.hold,
        objective_seconds: args.objective,
        patience_seconds: LEAST_PATIENCE_SECONDS.max(2.0 * args.objective),
        talk: Some(TalkSpec {
            messages: args.messages,
            rate_per_second: args.rate,
            arrivals: args.arrivals.into(),
            start: args.start.into(),
        }),
        ..common_spec(target, args.connections, &args.run)
    })
}

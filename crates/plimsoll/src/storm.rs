//! `plimsoll storm`: what if all clients come at one instant, are dropped, and all come back?

use model::{Spec, StormSpec, Target};

use crate::Failed;
use crate::cli::StormArgs;
use crate::experiment::{checked_target, common_spec, run};

/// Runs a storm; gives the exit code.
pub(crate) fn storm(args: &StormArgs) -> Result<u8, Failed> {
    let target = checked_target(&args.url, &args.run.fail_if)?;
    run(spec_of(args, target)?, "storm", &args.run, None)
}

/// Reads the arguments into what is asked.
fn spec_of(args: &StormArgs, target: Target) -> Result<Spec, Failed> {
    if args.connections == 0 {
        return Err(Failed::Usage("-c 0: a storm needs at least one connection".to_owned()));
    }
    Ok(Spec {
        // A round is a stage of its own; nothing is fitted over them.
        stages: 1,
        heartbeat_seconds: None,
        hold_seconds: args.hold,
        patience_seconds: args.patience,
        storm: Some(StormSpec {
            bursts: args.bursts,
            every_seconds: args.every,
            spread_seconds: args.spread.unwrap_or(0.0),
            away_seconds: args.away,
            attempt_seconds: args.attempt,
            backoff_seconds: args.backoff,
            ..StormSpec::default()
        }),
        ..common_spec(target, args.connections, &args.run)
    })
}

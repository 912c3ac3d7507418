//! What must one know before trusting the figures?

use analysis::Expression;
use model::{RunResult, units};

use crate::{churn, storm, sweep, verdict};

/// Stages that a 95% interval needs.
const STAGES_FOR_AN_INTERVAL: usize = 5;

/// All warnings of a run; each says what may be wrong, and what to do next.
pub(crate) fn warnings(run: &RunResult) -> Vec<String> {
    let mut out = Vec::new();
    if run.interrupted {
        out.push("the run was interrupted: figures cover what was seen until then".to_owned());
    }
    out.extend(visibility(run));
    out.extend(stages(run));
    out.extend(sweep::warnings(run));
    out.extend(hold(run));
    out.extend(accept_queue(run));
    out.extend(run.storm.iter().flat_map(storm::slow_generator));
    out.extend(churn::warnings(run));
    out.extend(thresholds(run));
    out
}

fn visibility(run: &RunResult) -> Option<String> {
    if let Some(why) = &run.settings.target_hidden {
        return Some(format!("the target's side was not seen: {why}"));
    }
    let seen = || run.stages.iter().filter_map(|s| s.target.as_ref());
    (seen().next().is_some() && seen().all(|g| g.user_bytes.is_none())).then(|| {
        "the target's memory could not be read (/proc/PID/smaps_rollup): run plimsoll as its user or as \
            root"
            .to_owned()
    })
}

fn stages(run: &RunResult) -> Vec<String> {
    let mut out = Vec::new();
    if run.stages.is_empty() {
        return out;
    }
    let good = run.good_stages().count();
    // A storm has rounds of one size: no cost is fitted over them. A sweep asks for other things than costs.
    if good < STAGES_FOR_AN_INTERVAL && run.storm.is_none() && run.sweep.is_none() {
        let what = if good < 2 { "costs per connection are not known" } else { "costs have no 95% interval" };
        let advice = if run.spec.stages < STAGES_FOR_AN_INTERVAL as u32 && !run.spec.until_it_breaks {
            "; ask for --stages 5 or more"
        } else {
            ""
        };
        out.push(format!(
            "{what}: {good} good stages, {STAGES_FOR_AN_INTERVAL} are needed for an interval{advice}"
        ));
    }
    let deciding = verdict::deciding(run);
    for (index, stage) in run.stages.iter().enumerate() {
        // A sweep tells that by client counts.
        if let Some(why) = stage.why_invalid.as_ref().filter(|_| !stage.valid && run.sweep.is_none()) {
            let decides = if deciding.contains(&index) { "" } else { "; it is left out of the figures" };
            out.push(format!("stage {} cannot be trusted: {why}{decides}", index + 1));
        }
    }
    for worker in &run.workers {
        if let Some(how) = &worker.died {
            out.push(format!(
                "worker {} died: {how}; its {} connections were lost with it",
                worker.id,
                units::count(worker.share)
            ));
        }
    }
    out
}

fn hold(run: &RunResult) -> Vec<String> {
    let mut out = Vec::new();
    let beat = &run.heartbeat;
    if beat.missed > 0 {
        let (missed, sent) = (units::count(beat.missed), units::count(beat.sent));
        out.push(format!(
            "{missed} of {sent} heartbeats were not answered within the patience, or their \
            connection ended first"
        ));
    }
    match run.spec.heartbeat_seconds {
        Some(interval) if run.spec.hold_seconds < interval && run.spec.talk.is_none() => out.push(format!(
            "held for {}, less than the heartbeat interval of {}: not every connection had a heartbeat; \
                use --hold {:.0}s or more",
            units::seconds(run.spec.hold_seconds),
            units::seconds(interval),
            interval.ceil()
        )),
        _ => {}
    }
    out
}

fn accept_queue(run: &RunResult) -> Option<String> {
    let finding = run.limits.iter().find(|f| f.id == crate::listen_accept_queue::ID)?;
    (finding.status == model::result::Status::Hit && !crate::listen_accept_queue::explains(run))
        .then(|| format!("{}: some connections came late", finding.summary))
}

fn thresholds(run: &RunResult) -> Vec<String> {
    let unmeasured = run.thresholds.iter().filter(|t| t.value.is_none());
    unmeasured
        .map(|t| match Expression::parse(&t.expression).and_then(|e| e.check_path()) {
            Ok(()) => format!(
                "--fail-if {:?} was not judged: that figure was not measured in this run",
                t.expression
            ),
            Err(error) => format!("--fail-if was not judged: {error}"),
        })
        .collect()
}

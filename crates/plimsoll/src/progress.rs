//! What does the user see while it runs? Plain lines here; the live view, on a terminal, in its own file.

use std::io::{self, Write as _};

use model::Counters;
use model::observation::Observation;
use model::result::{Moment, Stage};
use model::units;

/// How things stand at one moment.
pub(crate) struct Progress<'a> {
    pub(crate) moment: &'a Moment,
    pub(crate) counters: &'a Counters,
    pub(crate) requested: u64,
    /// Until what is being done now is over, where that is known.
    pub(crate) left_seconds: Option<f64>,
    /// What the probes saw before the first connection.
    pub(crate) before: &'a Observation,
    /// What they see now.
    pub(crate) seen: &'a Observation,
    /// Whether the user has stopped the run.
    pub(crate) interrupted: bool,
}

/// Whoever watches a run. Called from the coordinator's loop; must not block.
pub(crate) trait Audience {
    /// About once a second.
    fn moment(&mut self, progress: &Progress<'_>);
    /// After each stage: whether it passed, and what there is to say of it.
    fn stage(&mut self, passed: bool, line: &str);
    /// Something worth a line.
    fn say(&mut self, line: &str);
    /// The run is over.
    fn end(&mut self);
}

/// Nobody watches.
pub(crate) struct Quiet;

impl Audience for Quiet {
    fn moment(&mut self, _: &Progress<'_>) {}
    fn stage(&mut self, _: bool, _: &str) {}
    fn say(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// Lines on standard error.
#[derive(Default)]
pub(crate) struct Lines {
    doing: String,
    moments: u32,
}

/// While one thing goes on for long, a line is written every so many moments.
const EVERY: u32 = 5;

impl Audience for Lines {
    fn moment(&mut self, progress: &Progress<'_>) {
        let moment = progress.moment;
        if self.doing != moment.doing {
            self.doing.clone_from(&moment.doing);
            self.moments = 0;
        }
        self.moments += 1;
        if self.moments.is_multiple_of(EVERY) {
            self.say(&line(progress));
        }
    }

    fn stage(&mut self, _: bool, line: &str) {
        self.say(line);
    }

    fn say(&mut self, line: &str) {
        let _ = writeln!(io::stderr(), "{line}");
    }

    fn end(&mut self) {}
}

/// What is to be said of a finished stage.
pub(crate) fn stage_line(stage: &Stage) -> String {
    let outcome = match &stage.why_failed {
        Some(why) => why.clone(),
        None => {
            format!("{} verified in {}", units::count(stage.verified), units::seconds(stage.verify_seconds))
        }
    };
    format!(
        "{:>7.1} s  stage of {}: {} established in {}; {outcome}",
        stage.t_seconds + stage.seconds + stage.verify_seconds + stage.idle.map_or(0.0, |i| i.seconds),
        units::count(stage.connections),
        units::count(stage.established),
        units::seconds(stage.seconds),
    )
}

fn line(progress: &Progress<'_>) -> String {
    let moment = progress.moment;
    let mut text = format!(
        "{:>7.1} s  {}: {} ready of {}",
        moment.t_seconds,
        moment.doing,
        units::count(moment.ready),
        units::count(moment.wanted)
    );
    let failed = progress.counters.failed.total();
    if failed > 0 {
        text += &format!(", {} failed", units::count(failed));
    }
    if moment.messages_answered > 0 {
        text += &format!(", {} answered since", units::count(moment.messages_answered));
    }
    if let Some(p99) = moment.beat_p99_ms {
        text += &format!(", heartbeats p99 {}", units::milliseconds(p99));
    }
    if let Some(left) = progress.left_seconds {
        text += &format!(", {} left", units::seconds(left));
    }
    text
}

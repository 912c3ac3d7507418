//! Does the generator run out of descriptors?

use model::result::{Finding, Side, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, host_file_max, nice};

/// Descriptors of the generator's workers.
pub(crate) struct ClientNofile;

static FACTS: LimitFacts = LimitFacts {
    id: "client.nofile",
    side: Side::Client,
    question: "Does the generator run out of descriptors?",
    doc: "Every connection takes a descriptor of the worker that drives it; at its limit socket() fails with \
          EMFILE. More workers are more limits, until the host's fs.file-max is met (ENFILE).",
    how_to_see: "ulimit -Hn; sysctl fs.file-nr fs.file-max fs.nr_open",
    remedy_doc: "More workers, or a higher limit for the user who runs plimsoll.",
};

impl Limit for ClientNofile {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let failed = evidence::failures(run, &[FailureKind::NoDescriptors]);
        let each = per_worker(run);
        let summary = match each {
            _ if failed > 0 => {
                format!("{} connections found no descriptor left in the generator", units::count(failed))
            }
            Some(each) => {
                format!("a worker holds {}; as many workers as needed are started", units::count(each))
            }
            None => "the worker's descriptor limit could not be read".to_owned(),
        };
        let mut finding = match ceiling(run, each) {
            Some(ceiling) => {
                let status = if failed > 0 { Status::Hit } else { evidence::status_by_ceiling(run, ceiling) };
                evidence::with_ceiling(FACTS.finding(status, summary), run, ceiling)
            }
            None if failed > 0 => FACTS.finding(Status::Hit, summary),
            None if each.is_some() => FACTS.finding(Status::Clear, summary),
            None => FACTS.finding(Status::Unknown, summary),
        };
        finding.evidence = read(run, failed);
        finding.remedy = remedy(run, each);
        finding
    }
}

/// Connections that one worker's descriptors allow. Where they ran out, as many as there were then: the limit of a
/// running process can be lowered.
pub(crate) fn per_worker(run: &RunResult) -> Option<u64> {
    let hard = run.settings.worker.nofile_hard.or(run.settings.worker.nofile_soft)?;
    let ran_out =
        evidence::failures(run, &[FailureKind::NoDescriptors]) > 0 && !host_file_max::enfile_said(run);
    let limit = most_open(run).filter(|_| ran_out).map_or(hard, |most| most.min(hard));
    Some(limit.saturating_sub(run.settings.worker_base_descriptors))
}

/// The most descriptors that a worker was seen with.
fn most_open(run: &RunResult) -> Option<u64> {
    run.stages.iter().filter_map(|s| s.generator.as_ref()?.most_descriptors).max()
}

/// With a fixed number of workers, what they hold together; else what is left of the host's descriptors, of
/// which a connection takes two where both of its ends are here.
fn ceiling(run: &RunResult, each: Option<u64>) -> Option<u64> {
    let by_host = run.settings.host.file_max.map(|max| {
        let left = max.saturating_sub(run.before.host.files.unwrap_or(0));
        if run.settings.same_host { left / 2 } else { left }
    });
    let by_workers = run.spec.workers.and_then(|w| each.map(|each| each.saturating_mul(u64::from(w))));
    match (by_workers, by_host) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b).filter(|_| each.is_some()),
    }
}

fn read(run: &RunResult, failed: u64) -> Vec<String> {
    let settings = &run.settings;
    let mut out = Vec::new();
    if let Some(hard) = settings.worker.nofile_hard {
        out.push(format!(
            "/proc/PID/limits of a worker: Max open files {hard} (hard), of which it needs {} itself",
            settings.worker_base_descriptors
        ));
    }
    if let Some(max) = settings.host.file_max {
        let used = run.before.host.files.map_or("unknown".to_owned(), units::count);
        out.push(format!("fs.file-max {}, in use before the run {used}", units::count(max)));
    }
    let workers =
        run.spec.workers.map_or("as many workers as needed".to_owned(), |w| format!("--workers {w}"));
    let took_part = match run.workers.len() {
        0 => String::new(),
        n => format!("; {n} took part"),
    };
    out.push(format!("{workers}{took_part}"));
    if failed > 0 {
        let most = most_open(run)
            .map_or(String::new(), |n| format!("; a worker had up to {} open", units::count(n)));
        out.push(format!("a socket could not be made {} (EMFILE or ENFILE){most}", evidence::times(failed)));
    }
    out
}

/// The limit that each worker needs for what is asked, if there are no more of them than now.
pub(crate) fn wanted(run: &RunResult) -> u64 {
    let driving = run.spec.workers.map_or(run.workers.len() as u64, u64::from).max(1);
    let now = run.settings.worker.nofile_hard.unwrap_or(0);
    let share = nice::lifted(evidence::asked(run)).div_ceil(driving);
    nice::up(share + run.settings.worker_base_descriptors).max(now)
}

fn remedy(run: &RunResult, each: Option<u64>) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let workers = wanted.div_ceil(each.unwrap_or(1_000).max(1)).max(1);
    let limit = self::wanted(run);
    let mut out = vec![
        format!("plimsoll hold {} -c {wanted} --workers {workers}", run.target.url),
        "# or a higher limit for the user who runs plimsoll, in /etc/security/limits.d/plimsoll.conf:"
            .to_owned(),
        format!("* soft nofile {limit}"),
        format!("* hard nofile {limit}"),
        "# or, where systemd starts it, in its unit:".to_owned(),
        format!("LimitNOFILE={limit}"),
    ];
    if run.settings.host.nr_open.is_some_and(|most| most < limit) {
        out.push(format!("sysctl -w fs.nr_open={limit}"));
    }
    let ends = if run.settings.same_host { 2 } else { 1 };
    if run.settings.host.file_max.is_some_and(|max| max < wanted.saturating_mul(ends)) {
        out.push(format!("sysctl -w fs.file-max={}", nice::up(wanted.saturating_mul(ends))));
    }
    out
}

#[cfg(test)]
mod tests {
    use model::FailureKind;

    use crate::testing::{self, finding};

    const ID: &str = "client.nofile";

    #[test]
    fn a_limit_lowered_while_it_ran_is_what_a_worker_had_open() {
        let mut run = testing::run();
        run.spec.workers = Some(1);
        assert_eq!(finding(run.clone(), ID).ceiling_connections, Some(20_000 - 16));
        testing::fail_last(&mut run, FailureKind::NoDescriptors, 3);
        let found = finding(run.clone(), ID);
        assert_eq!(found.ceiling_connections, Some(10_007 - 16));
        assert_eq!(found.remedy[0], "plimsoll hold tcp://127.0.0.1:7000 -c 12000 --workers 2");
        // Where the host had none left, what a worker had open says nothing of its own limit.
        let words = "Too many open files in system (os error 23)".to_owned();
        run.connections.failed_example.insert(FailureKind::NoDescriptors, words);
        assert_eq!(finding(run, ID).ceiling_connections, Some(20_000 - 16));
    }
}

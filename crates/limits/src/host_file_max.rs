//! Does the host run out of open files?

use analysis::cost;
use model::result::{Finding, Side, Status};
use model::{Estimate, FailureKind, RunResult, units};

use crate::evidence::{self, Each};
use crate::sides::share_a_host;
use crate::{Limit, LimitFacts, nice, server_nofile, sysctl};

/// Open files of the host that is observed: the generator's, and the target's where both share one.
pub(crate) struct HostFileMax;

static FACTS: LimitFacts = LimitFacts {
    id: "host.file-max",
    side: Side::Host,
    question: "Does the host run out of open files?",
    doc: "The kernel bounds the open files of all processes together, sockets among them. There socket() and \
          accept() fail with ENFILE, whatever the process's own limit allows, for all but those with \
          CAP_SYS_ADMIN. A connection takes a file for each of its ends that is on this host.",
    how_to_see: "sysctl fs.file-nr fs.file-max; dmesg | grep 'file-max limit'",
    remedy_doc: "A higher fs.file-max.",
};

/// From this share of the maximum on, nothing more is opened: the kernel counts in batches per CPU.
const FULL: f64 = 0.995;

/// A slope of files below this is noise: each end of a connection takes one.
const LEAST_SLOPE: f64 = 0.5;

/// What one end of a connection takes where it was not measured.
const ONE_END: Estimate = Estimate { value: 1.0, low: Some(1.0), high: Some(1.0), stages: 0 };

impl Limit for HostFileMax {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let (max, before) = (run.settings.host.file_max, run.before.host.files);
        let (each, fitted) = each(run);
        let met = met(run);
        let room = max.zip(before).map(|(max, before)| max.saturating_sub(before) as f64);
        let (status, summary) = match (&met, max, before) {
            (Some(met), Some(max), _) => {
                let (files, max) = (units::count(met.files), units::count(max));
                (Status::Hit, format!("{files} of the host's {max} files were open"))
            }
            _ if enfile_said(run) => {
                (Status::Hit, "connections found the host's table of open files full".to_owned())
            }
            (_, Some(max), Some(before)) => {
                let ceiling = room.and_then(|room| each.fit_into(room));
                (status(run, max, ceiling), clear_summary(max, before))
            }
            _ => (Status::Unknown, "fs.file-max or fs.file-nr could not be read".to_owned()),
        };
        let mut finding = FACTS.finding(status, summary);
        if let Some(room) = room {
            finding = each.ceiling(finding, run, room);
        }
        finding = evidence::of_this_host(finding, run);
        finding.evidence = read(run, each, fitted, met.as_ref());
        finding.remedy = remedy(run, each);
        finding
    }
}

/// The host stood at its maximum while connections failed.
struct Met {
    /// Where it was read.
    at: String,
    /// Files that were open.
    files: u64,
    /// Connections that failed there as they do for want of one.
    failed: u64,
}

fn met(run: &RunResult) -> Option<Met> {
    let max = run.settings.host.file_max?;
    let own = [FailureKind::NoDescriptors];
    let both: Vec<FailureKind> = own.into_iter().chain(server_nofile::SYMPTOMS).collect();
    let kinds = if run.settings.same_host { both.as_slice() } else { own.as_slice() };
    let staged = run.stages.iter().map(|s| evidence::stage_failures(s, kinds));
    let failed = staged.chain([evidence::failures(run, kinds)]);
    evidence::host_readings(run).zip(failed).find_map(|((at, host), failed)| {
        let files = host.files.filter(|n| *n as f64 >= FULL * max as f64)?;
        (failed > 0).then_some(Met { at, files, failed })
    })
}

/// Whether the generator's own kernel said ENFILE: "Too many open files in system".
pub(crate) fn enfile_said(run: &RunResult) -> bool {
    evidence::words(run, FailureKind::NoDescriptors).is_some_and(|words| words.contains("files in system"))
}

fn status(run: &RunResult, max: u64, ceiling: Option<u64>) -> Status {
    let most = evidence::highest(run, |host| host.files);
    if most.is_some_and(|(_, n)| n as f64 >= 0.9 * max as f64) {
        Status::Near
    } else {
        ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c))
    }
}

fn clear_summary(max: u64, before: u64) -> String {
    format!("{} of the host's {} files were open before the run", units::count(before), units::count(max))
}

/// Files that one connection takes here, and over how many stages that was fitted; `None`: by its ends alone.
/// Never less than its ends take: the kernel's count is some dozens behind.
fn each(run: &RunResult) -> (Each, Option<u32>) {
    let files = cost::over(&cost::growing(run), |s| s.host.files.map(|n| n as f64));
    if let Some(slope) = files.filter(|e| e.value >= LEAST_SLOPE) {
        let ends = if share_a_host(run) { 2.0 } else { 1.0 };
        return (Each::sum(&[slope]).at_least(ends), Some(slope.stages));
    }
    let target = run.cost.target.descriptors_per_connection.filter(|e| e.value >= LEAST_SLOPE);
    let target = run.settings.same_host.then_some(target.unwrap_or(ONE_END));
    // Of two ends on two hosts, the one that is looked at.
    let own = (share_a_host(run) || target.is_none()).then_some(ONE_END);
    let parts: Vec<Estimate> = own.into_iter().chain(target).collect();
    (Each::sum(&parts), None)
}

fn read(run: &RunResult, each: Each, fitted: Option<u32>, met: Option<&Met>) -> Vec<String> {
    let mut out = vec![format!(
        "fs.file-max {}; fs.file-nr {} before the run",
        evidence::number(run.settings.host.file_max),
        evidence::number(run.before.host.files)
    )];
    if let Some((at, most)) = evidence::highest(run, |host| host.files) {
        out.push(format!("at most {} files were open, at {at}", units::count(most)));
    }
    out.push(match fitted {
        Some(stages) => format!("{:.2} files per connection, fitted over {stages} stages", each.value),
        None => format!("not measured: {:.2} files per connection are taken, by its ends here", each.value),
    });
    if let Some(met) = met {
        out.push(format!(
            "{} connections failed at {}, where the table was full",
            units::count(met.failed),
            met.at
        ));
    }
    out.extend(
        evidence::words(run, FailureKind::NoDescriptors).map(|words| format!("socket() said: \"{words}\"")),
    );
    out
}

fn remedy(run: &RunResult, each: Each) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let needed = (wanted as f64 * each.value) as u64 + run.before.host.files.unwrap_or(0);
    let now = run.settings.host.file_max.unwrap_or(0);
    let mut out = vec![format!(
        "# {} connections need {} open files on this host",
        units::count(wanted),
        units::count(needed)
    )];
    out.extend(sysctl::set("fs.file-max", nice::raised(needed, now)));
    out
}

#[cfg(test)]
mod tests {
    use model::FailureKind;
    use model::result::{Side, Status};

    use crate::testing::{self, finding};

    const ID: &str = "host.file-max";

    #[test]
    fn the_ceiling_is_what_is_left_by_files_per_connection() {
        let mut run = testing::run();
        run.settings.host.file_max = Some(101_000);
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(50_000)));
        assert!(found.remedy.contains(&"sysctl -w fs.file-max=130000".to_owned()), "{:?}", found.remedy);
        for (i, stage) in run.stages.iter_mut().enumerate() {
            stage.host.files = Some(1_000 + stage.ready * 17 / 10 + i as u64 % 3);
        }
        assert_eq!(finding(run.clone(), ID).ceiling_connections, Some(50_000));
        run.settings.host.file_max = Some(22_000);
        let found = finding(run, ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(10_500)));
        assert!(found.remedy.contains(&"sysctl -w fs.file-max=27000".to_owned()), "{:?}", found.remedy);
    }

    #[test]
    fn a_full_table_explains_failures_and_nothing_else() {
        let mut run = testing::run();
        run.settings.host.file_max = Some(21_000);
        assert_eq!(finding(run.clone(), ID).status, Status::Near);
        testing::fail_last(&mut run, FailureKind::ReadyTimeout, 40);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.evidence.iter().any(|e| e.contains("40 connections failed at stage 10")), "{found:?}");
        // Elsewhere the server's accept() does not use this host's files.
        testing::hide_target(&mut run);
        let found = finding(run, ID);
        assert_eq!((found.status, found.side), (Status::Near, Side::Client));
    }

    #[test]
    fn enfile_is_told_from_emfile_by_its_words() {
        let mut run = testing::run();
        testing::fail_last(&mut run, FailureKind::NoDescriptors, 3);
        let say = |run: &mut model::RunResult, words: &str| {
            run.connections.failed_example.insert(FailureKind::NoDescriptors, words.into());
        };
        say(&mut run, "Too many open files (os error 24)");
        assert_eq!(finding(run.clone(), ID).status, Status::Clear);
        say(&mut run, "Too many open files in system (os error 23)");
        assert_eq!(finding(run.clone(), ID).status, Status::Hit);
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn before_the_run_each_end_here_takes_one_file() {
        let found = finding(testing::doctor(10_000), ID);
        assert_eq!(found.ceiling_connections, Some((2_466_177 - 1_000) / 2));
        let mut elsewhere = testing::doctor(10_000);
        testing::hide_target(&mut elsewhere);
        assert_eq!(finding(elsewhere, ID).ceiling_connections, Some(2_466_177 - 1_000));
    }
}

//! Is the generator too slow for what it measures?

use analysis::Cause;
use analysis::validity;
use model::RunResult;
use model::result::{Finding, Side, Status};

use crate::{Limit, LimitFacts, cgroup, evidence, verdict};

/// The generator's own processors.
pub(crate) struct ClientCpu;

/// Its name: the verdict treats it apart.
pub(crate) const ID: &str = "client.cpu";

static FACTS: LimitFacts = LimitFacts {
    id: ID,
    side: Side::Client,
    question: "Is the generator too slow for what it measures?",
    doc: "A worker whose loop runs late measures itself. Its lag against its own schedule, and the time for \
          which a CPU quota held it back, make a stage invalid; figures of such a stage are not used.",
    how_to_see: "cat /sys/fs/cgroup/.../cpu.stat; cat /proc/pressure/cpu; top -p PID",
    remedy_doc: "More CPU for the generator, fewer connections on this machine, or another machine.",
};

impl Limit for ClientCpu {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let held_back: Vec<(usize, String)> = (0..run.stages.len())
            .flat_map(|i| validity::causes(run, i).into_iter().map(move |cause| (i + 1, cause)))
            .filter(|(_, cause)| {
                matches!(cause, Cause::Throttled { .. } | Cause::Lagged { .. } | Cause::Filled { .. })
            })
            .map(|(number, cause)| (number, cause.says()))
            .collect();
        let strain = (0..run.stages.len()).filter_map(|i| validity::strain(run, i)).reduce(f64::max);
        let mut finding = match strain {
            _ if !held_back.is_empty() => {
                let mut stages: Vec<usize> = held_back.iter().map(|(number, _)| *number).collect();
                stages.dedup();
                let summary = format!(
                    "the generator was the bottleneck in {} of {} stages",
                    stages.len(),
                    run.stages.len()
                );
                // A late stage in the middle of a ramp only costs its own figures.
                let decides = verdict::deciding(run).iter().any(|i| stages.contains(&(i + 1)));
                FACTS.finding(if decides { Status::Hit } else { Status::Near }, summary)
            }
            Some(strain) => {
                let status = if strain >= 0.5 { Status::Near } else { Status::Clear };
                let summary =
                    format!("the generator ran at most {:.0}% as late as is tolerated", strain * 100.0);
                FACTS.finding(status, summary)
            }
            None if evidence::not_begun(run) => FACTS.finding(
                Status::Unknown,
                "unknown until measured: how late the generator runs shows under load",
            ),
            None => FACTS.finding(Status::Unknown, "the generator's lag was not read"),
        };
        const QUOTED: usize = 4;
        finding
            .evidence
            .extend(held_back.iter().take(QUOTED).map(|(number, says)| format!("stage {number}: {says}")));
        if held_back.len() > QUOTED {
            finding.evidence.push(format!("and {} more of the same", held_back.len() - QUOTED));
        }
        if let Some(cpus) = quota(run) {
            finding.evidence.push(format!("the generator's cgroup allows it {cpus:.2} CPUs"));
        }
        finding.evidence.push(format!("{} CPUs may be used on this host", run.host.cpus));
        finding.remedy = remedy(run);
        finding
    }
}

/// CPUs that the generator's quota allows.
fn quota(run: &RunResult) -> Option<f64> {
    run.before.generator.as_ref()?.cgroup.as_ref()?.cpu_limit
}

fn remedy(run: &RunResult) -> Vec<String> {
    let mut out = Vec::new();
    if quota(run).is_some() {
        let group = run.before.generator.as_ref().and_then(|g| g.cgroup.as_ref());
        out.push("# lift the CPU quota of the generator's cgroup:".to_owned());
        out.extend(group.and_then(|group| cgroup::cpus(group, run.host.cpus.max(1))));
    }
    if run.sweep.is_some() {
        out.push("# where the generator has CPUs to spare, let more workers share the clients:".to_owned());
        out.push(format!("plimsoll sweep {} --workers {}", run.target.url, run.workers.len() + 1));
    } else {
        out.push("# open more slowly:".to_owned());
        out.push(format!(
            "plimsoll hold {} -c {} --rate {}",
            run.target.url,
            evidence::asked(run),
            slower(run).max(1)
        ));
    }
    let share = if run.settings.same_host { "; the target takes part of this one's CPUs" } else { "" };
    out.push(format!("# or run the generator on a machine of its own{share}"));
    out
}

/// Half of the rate at which connections came to be; a tenth of those asked for where that is not known.
fn slower(run: &RunResult) -> u64 {
    let rate = run.establish.rate_per_second;
    if rate > 1.0 { (rate / 2.0) as u64 } else { evidence::asked(run) / 10 }
}

//! Does the server run out of threads?

use model::result::{Finding, Side, Status};
use model::{Group, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, cgroup, nice};

/// Threads and processes of a server that takes one for each connection.
pub(crate) struct ServerThreads;

static FACTS: LimitFacts = LimitFacts {
    id: "server.threads",
    side: Side::Server,
    question: "Does the server run out of threads?",
    doc: "A server that takes a thread or a process for each connection meets the most tasks that its \
          cgroup, its user or the kernel allow. It shows as \"unable to create native thread\" or as a \
          failed fork, at a number like 4,915 or 32,768.",
    how_to_see: "cat /sys/fs/cgroup/.../pids.max pids.current; grep processes /proc/PID/limits; sysctl \
        kernel.threads-max kernel.pid_max",
    remedy_doc: "A higher TasksMax and LimitNPROC in the server's unit, a higher kernel.threads-max and \
        kernel.pid_max, or a server that does not take a thread per connection.",
};

/// From this slope on, connections take threads.
pub(crate) const A_THREAD_EACH: f64 = 0.5;

/// Who says how many tasks there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Cgroup,
    User,
    ThreadsMax,
    PidMax,
}

/// One maximum, and what of it was taken before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Maximum {
    whose: Whose,
    most: u64,
    before: u64,
}

impl Maximum {
    fn room(&self) -> u64 {
        self.most.saturating_sub(self.before)
    }

    fn says(&self) -> String {
        let most = units::count(self.most);
        match self.whose {
            Whose::Cgroup => format!("pids.max {most} of its cgroup"),
            Whose::User => format!("Max processes {most} of its user"),
            Whose::ThreadsMax => format!("kernel.threads-max {most}"),
            Whose::PidMax => format!("kernel.pid_max {most}"),
        }
    }

    /// What is counted against it, read with a group of the target's processes and all tasks of the host.
    fn taken(&self, group: &Group, tasks: Option<u64>) -> Option<u64> {
        match self.whose {
            Whose::Cgroup => group.cgroup.as_ref()?.pids,
            // Other processes of the same user count as well, and cannot be seen: at least so many.
            Whose::User => Some(group.threads),
            Whose::ThreadsMax | Whose::PidMax => tasks,
        }
    }
}

impl Limit for ServerThreads {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let maxima = maxima(run);
        let lowest = maxima.iter().min_by_key(|m| m.room()).copied();
        let slope = run.cost.target.threads_per_connection;
        let grows = slope.filter(|slope| slope.value >= A_THREAD_EACH);
        let met = met(run, &maxima).filter(|_| slope.is_none() || grows.is_some());
        let mut finding = match (&met, slope, grows, lowest) {
            _ if run.before.target.is_none() => FACTS.finding(Status::Unknown, evidence::hidden(run)),
            (Some(met), ..) => FACTS.finding(
                Status::Hit,
                format!(
                    "{} tasks stood at {}, against {}",
                    units::count(met.taken),
                    met.at,
                    met.maximum.says()
                ),
            ),
            (None, None, ..) => FACTS.finding(
                Status::Unknown,
                "unknown until measured: whether connections take threads shows once some are held",
            ),
            (None, Some(_), None, _) => {
                FACTS.finding(Status::Clear, "the target's threads do not grow with its connections")
            }
            (None, Some(_), Some(_), None) => FACTS.finding(
                Status::Unknown,
                "the target takes a thread per connection, and no maximum of them could be read",
            ),
            (None, Some(_), Some(each), Some(lowest)) => {
                let ceiling = (lowest.room() as f64 / each.value) as u64;
                let summary = format!(
                    "the target takes {:.2} threads per connection, up to {}",
                    each.value,
                    lowest.says()
                );
                FACTS.finding(evidence::status_by_ceiling(run, ceiling), summary)
            }
        };
        let binding = met.as_ref().map(|met| met.maximum).or(lowest);
        if let (Some(each), Some(maximum)) = (grows, binding) {
            // In thousandths: a ceiling's denominator is a whole thing at least.
            let thousandth = |x: f64| x * 1e3;
            let each = model::Estimate {
                value: thousandth(each.value),
                low: each.low.map(thousandth),
                high: each.high.map(thousandth),
                ..each
            };
            finding = Each::sum(&[each]).ceiling(finding, run, thousandth(maximum.room() as f64));
        }
        finding.evidence = read(run, &maxima, met.as_ref());
        finding.remedy = remedy(run, binding);
        finding
    }
}

/// The maxima that can be read, with what was taken of each before.
fn maxima(run: &RunResult) -> Vec<Maximum> {
    let Some(before) = run.before.target.as_ref() else { return vec![] };
    let host = &run.settings.host;
    let user = run.settings.target.iter().filter_map(|p| p.nproc_soft).min();
    let known = [
        (Whose::Cgroup, before.cgroup.as_ref().and_then(|c| c.pids_limit)),
        (Whose::User, user),
        (Whose::ThreadsMax, host.threads_max),
        (Whose::PidMax, host.pid_max),
    ];
    known
        .into_iter()
        .filter_map(|(whose, most)| {
            let mut maximum = Maximum { whose, most: most?, before: 0 };
            maximum.before = maximum.taken(before, run.before.host.tasks)?;
            // One that was passed before the run binds nothing: HAProxy forbids itself any further process, and has two.
            (maximum.before < maximum.most).then_some(maximum)
        })
        .collect()
}

/// A maximum at which the tasks stood while connections failed.
struct Met {
    maximum: Maximum,
    /// Where it was read: "stage 3", "the end".
    at: String,
    taken: u64,
}

/// Whether no thread more could be started while connections failed.
pub(crate) fn are_met(run: &RunResult) -> bool {
    met(run, &maxima(run)).is_some()
}

fn met(run: &RunResult, maxima: &[Maximum]) -> Option<Met> {
    let staged = evidence::failed_stages(run)
        .filter_map(|(number, s)| Some((format!("stage {number}"), s.target.as_ref()?, s.host.tasks)));
    let failed = run.connections.failed_total() > 0;
    let end = run.after.target.as_ref().filter(|_| failed);
    let end = end.map(|group| ("the end".to_owned(), group, run.after.host.tasks));
    staged.chain(end).find_map(|(at, group, tasks)| {
        maxima.iter().find_map(|maximum| {
            let taken = maximum.taken(group, tasks)?;
            let close = maximum.most.saturating_sub(2).min((maximum.most as f64 * 0.995) as u64);
            (taken >= close).then(|| Met { maximum: *maximum, at: at.clone(), taken })
        })
    })
}

fn read(run: &RunResult, maxima: &[Maximum], met: Option<&Met>) -> Vec<String> {
    let mut out: Vec<String> =
        maxima.iter().map(|m| format!("{}: {} taken before", m.says(), units::count(m.before))).collect();
    if let Some(each) = run.cost.target.threads_per_connection {
        out.push(format!("{:.2} threads per connection, fitted over {} stages", each.value, each.stages));
    }
    if let Some(met) = met {
        out.push(format!("at {} connections failed, with {} taken", met.at, units::count(met.taken)));
    } else if let Some((at, most)) =
        evidence::target_readings(run).map(|(at, g)| (at, g.threads)).max_by_key(|r| r.1)
    {
        out.push(format!("the target had at most {} threads, at {at}", units::count(most)));
    }
    out
}

fn remedy(run: &RunResult, binding: Option<Maximum>) -> Vec<String> {
    let each = run.cost.target.threads_per_connection.map_or(1.0, |e| e.value.max(A_THREAD_EACH));
    let needed = (nice::lifted(evidence::asked(run)) as f64 * each).ceil() as u64;
    let limit =
        nice::up(needed.saturating_add(binding.map_or(0, |m| m.before))).max(binding.map_or(0, |m| m.most));
    let unit = |line: &str| {
        let how = "# to keep it, where systemd starts the server (systemctl edit NAME):";
        vec![how.to_owned(), "[Service]".to_owned(), format!("{line}={limit}")]
    };
    let group = run.before.target.as_ref().and_then(|g| g.cgroup.as_ref());
    // A thread needs a pid as well; the kernel takes no more than 2^22 of them.
    let pids = limit.min(1 << 22);
    let mut out = match binding.map(|m| m.whose) {
        Some(Whose::Cgroup) => {
            let now = group.and_then(|group| cgroup::tasks(group, limit));
            now.into_iter().chain(unit("TasksMax")).collect()
        }
        Some(Whose::User) => {
            let pids: Vec<String> = run.settings.target.iter().map(|p| p.pid.to_string()).collect();
            let pids = pids.join(" ");
            let now = format!("for pid in {pids}; do prlimit --pid $pid --nproc={limit}:{limit}; done");
            [now].into_iter().chain(unit("LimitNPROC")).collect()
        }
        Some(Whose::ThreadsMax | Whose::PidMax) => {
            vec![format!("sysctl -w kernel.threads-max={limit} kernel.pid_max={pids}")]
        }
        None => {
            let mut out = unit("TasksMax");
            out.push(format!("LimitNPROC={limit}"));
            out
        }
    };
    out.push("# or a server that does not take a thread per connection".to_owned());
    out
}

//! Does the server run out of descriptors?

use model::observation::ProcessSettings;
use model::result::{Finding, Side, Status};
use model::{Estimate, FailureKind, Group, RunResult, units};

use crate::{Limit, LimitFacts, evidence, listen_accept_queue, nice, server_threads};

/// Descriptors of the target's processes.
pub(crate) struct ServerNofile;

static FACTS: LimitFacts = LimitFacts {
    id: "server.nofile",
    side: Side::Server,
    question: "Does the server run out of descriptors?",
    doc: "Every connection takes at least one descriptor of the process that accepts it. At its soft limit \
          accept() fails with EMFILE: the kernel still opens connections and nobody answers them, or the \
          server closes them. It shows as a line a few below 1,024, 4,096 or another round number.",
    how_to_see: "grep 'open files' /proc/PID/limits; ls /proc/PID/fd | wc -l",
    remedy_doc: "A higher LimitNOFILE in the server's unit, and the server's own setting where it has one.",
};

/// How failed connections look when the server cannot accept or open anything more.
pub(crate) const SYMPTOMS: [FailureKind; 7] = [
    FailureKind::Silent,
    FailureKind::ReadyTimeout,
    FailureKind::ConnectTimeout,
    FailureKind::ClosedEarly,
    FailureKind::Closed,
    FailureKind::Reset,
    FailureKind::Refused,
];

/// A slope of descriptors below this means that connections do not take descriptors of the processes seen.
const NO_DESCRIPTORS: f64 = 0.01;

impl Limit for ServerNofile {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let processes = &run.settings.target;
        let lowest = evidence::lowest_nofile(processes);
        let Some(lowest) = lowest else {
            let mut finding = FACTS.finding(Status::Unknown, evidence::hidden(run));
            finding.remedy = remedy(run);
            return finding;
        };
        let slope = run.cost.target.descriptors_per_connection;
        let ceiling = ceiling(run, slope.map_or(1.0, |e| e.value));
        let fullest = evidence::target_readings(run).filter_map(|(_, g)| g.most_descriptors).max();
        let near = fullest.is_some_and(|most| most as f64 >= 0.9 * lowest as f64);
        let (status, summary) = if let Some(met) = met(run) {
            (
                Status::Hit,
                format!("a process of the target had {} of {} descriptors open", met.most, met.limit),
            )
        } else {
            let by_ceiling = ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c));
            let status = if near { Status::Near } else { by_ceiling };
            let own = "connections take descriptors, but each those of a process of its own";
            let summary = if a_process_each(run) { own.to_owned() } else { clear_summary(processes, lowest) };
            (status, summary)
        };
        let mut finding = FACTS.finding(status, summary);
        if let Some(ceiling) = ceiling {
            finding = evidence::with_ceiling(finding, run, ceiling);
            finding.ceiling_low = slope.and_then(|e| e.high).and_then(|each| self::ceiling(run, each));
            finding.ceiling_high = slope.and_then(|e| e.low).and_then(|each| self::ceiling(run, each));
        }
        finding.evidence = read(run);
        finding.remedy = remedy(run);
        finding
    }
}

/// A process that stood at its limit while connections failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    /// Where it was read: "stage 3", "the end".
    at: String,
    /// Descriptors that it had open.
    most: u64,
    /// Its soft limit.
    limit: u64,
    /// Connections that failed with a symptom of it there.
    failed: u64,
    /// How many of them the kernel had opened.
    unanswered: u64,
}

/// Whether a process of the target stood at its descriptor limit (within 2, or half a percent) at the end of
/// a stage, or of the run, in which connections failed as they fail when nothing more can be accepted.
pub(crate) fn met(run: &RunResult) -> Option<Met> {
    let at_limit = |at: String, group: Option<&Group>, failed: u64, unanswered: u64| {
        let most = group?.most_descriptors?;
        // No process can exceed its own limit, so `most` is compared with each of them.
        let limit = run.settings.target.iter().filter_map(|p| p.nofile_soft).find(|&limit| {
            let close = limit.saturating_sub(2).min((limit as f64 * 0.995) as u64);
            (close..=limit).contains(&most)
        })?;
        Some(Met { at, most, limit, failed, unanswered })
    };
    let staged = evidence::failed_stages(run).find_map(|(number, stage)| {
        let failed =
            evidence::stage_failures(stage, &SYMPTOMS).max(stage.connections.saturating_sub(stage.verified));
        let foreign = evidence::stage_failures(stage, &[FailureKind::NoPorts, FailureKind::NoDescriptors]);
        let unanswered = evidence::stage_failures(stage, &[FailureKind::ReadyTimeout]);
        at_limit(format!("stage {number}"), stage.target.as_ref(), failed, unanswered)
            .filter(|_| failed > foreign)
    });
    let at_end = || {
        let failed = evidence::failures(run, &SYMPTOMS);
        let unanswered = evidence::failures(run, &[FailureKind::ReadyTimeout]);
        at_limit("the end".to_owned(), run.after.target.as_ref(), failed, unanswered).filter(|_| failed > 0)
    };
    staged.or_else(at_end)
}

/// What the limits of all accepting processes leave together, with `each` descriptors per connection.
fn ceiling(run: &RunResult, each: f64) -> Option<u64> {
    let processes = &run.settings.target;
    if a_process_each(run) {
        return None;
    }
    let left = |p: &ProcessSettings| Some(p.nofile_soft?.saturating_sub(p.descriptors.unwrap_or(0)));
    let room: u64 = processes.iter().filter_map(left).fold(0, u64::saturating_add);
    (each >= NO_DESCRIPTORS).then(|| (room as f64 / each) as u64)
}

/// Whether each connection has a process of its own (PostgreSQL), so that no process has more descriptors open for
/// more of them.
fn a_process_each(run: &RunResult) -> bool {
    let fullest = evidence::target_readings(run).filter_map(|(_, g)| g.most_descriptors).max();
    let (Some(slope), Some(fullest)) = (run.cost.target.threads_per_connection, fullest) else {
        return false;
    };
    slope.value >= server_threads::A_THREAD_EACH && fullest < evidence::peak(run) / 2
}

fn clear_summary(processes: &[ProcessSettings], lowest: u64) -> String {
    match processes.len() {
        1 => format!("the target may open {} descriptors", units::count(lowest)),
        n => format!(
            "each of the target's {n} accepting processes may open {} descriptors or more",
            units::count(lowest)
        ),
    }
}

fn read(run: &RunResult) -> Vec<String> {
    let mut out = Vec::new();
    let readable: Vec<&ProcessSettings> =
        run.settings.target.iter().filter(|p| p.nofile_soft.is_some()).collect();
    // Processes of one kind have one limit: each different one is quoted once.
    let groups = readable
        .chunk_by(|a, b| (a.nofile_soft, a.nofile_hard, &a.name) == (b.nofile_soft, b.nofile_hard, &b.name));
    for group in groups {
        let p = group[0];
        let number = |n: Option<u64>| n.map_or("unknown".to_owned(), |n| n.to_string());
        let same = match group.len() {
            1 => String::new(),
            n => format!("; the same for {} more of its processes", n - 1),
        };
        out.push(format!(
            "/proc/{}/limits ({}): Max open files {} soft, {} hard; {} open before the run{same}",
            p.pid,
            p.name,
            number(p.nofile_soft),
            number(p.nofile_hard),
            number(p.descriptors)
        ));
    }
    if let Some(met) = met(run) {
        out.push(format!("descriptors of the fullest process at {}: {}", met.at, met.most));
        out.push(format!(
            "{} connections were opened by the kernel or asked for, and not served there",
            units::count(met.failed)
        ));
        if met.unanswered > 0 {
            let holds = listen_accept_queue::backlog(run)
                .map_or(String::new(), |n| format!(" (which holds {}, and one more)", units::count(n)));
            out.push(format!(
                "{} of them were accepted by the kernel, and never answered: it fills the accept queue{holds} \
                 also where the server takes nothing out",
                units::count(met.unanswered)
            ));
        }
    } else if let Some((at, most)) = evidence::target_readings(run)
        .filter_map(|(at, g)| Some((at, g.most_descriptors?)))
        .max_by_key(|r| r.1)
    {
        out.push(format!("the fullest process had at most {} open, at {at}", units::count(most)));
    }
    match run.cost.target.descriptors_per_connection {
        Some(Estimate { value, stages, .. }) => {
            out.push(format!("{value:.2} descriptors per connection, fitted over {stages} stages"));
        }
        None => out.push("not measured: 1 descriptor per connection is taken".to_owned()),
    }
    out
}

/// The limit that each accepting process needs for what is asked.
pub(crate) fn wanted(run: &RunResult) -> u64 {
    let processes = &run.settings.target;
    let each = run.cost.target.descriptors_per_connection.map_or(1.0, |e| e.value.max(1.0));
    let accepting = processes.len().max(1) as f64;
    let base = processes.iter().filter_map(|p| p.descriptors).max().unwrap_or(64);
    let share = (nice::lifted(evidence::asked(run)) as f64 * each / accepting).ceil() as u64;
    nice::up(share + base).max(evidence::lowest_nofile(processes).unwrap_or(0))
}

/// Connections for which the accepting processes have descriptors; `None`: they cannot be seen, or connections take
/// none of theirs.
pub(crate) fn room(run: &RunResult) -> Option<u64> {
    evidence::lowest_nofile(&run.settings.target)?;
    ceiling(run, run.cost.target.descriptors_per_connection.map_or(1.0, |e| e.value))
}

fn remedy(run: &RunResult) -> Vec<String> {
    let processes = &run.settings.target;
    let limit = wanted(run);
    let mut out = Vec::new();
    if run.settings.host.nr_open.is_some_and(|most| most < limit) {
        out.push(format!("sysctl -w fs.nr_open={limit}"));
    }
    match processes.as_slice() {
        [] => {}
        [one] => out.push(format!("prlimit --pid {} --nofile={limit}:{limit}", one.pid)),
        many => {
            let pids: Vec<String> = many.iter().map(|p| p.pid.to_string()).collect();
            let pids = pids.join(" ");
            out.push(format!("for pid in {pids}; do prlimit --pid $pid --nofile={limit}:{limit}; done"));
        }
    }
    out.push(
        "# to keep it, where systemd starts the server (systemctl edit NAME), then restart it:".to_owned(),
    );
    out.push("[Service]".to_owned());
    out.push(format!("LimitNOFILE={limit}"));
    match evidence::target_name(run) {
        Some("nginx") => {
            out.push("# nginx.conf, at the top and in events { }; half as many where it proxies:".to_owned());
            out.push(format!("worker_rlimit_nofile {limit};"));
            out.push(format!("worker_connections {limit};"));
        }
        Some("redis-server" | "valkey-server") => {
            out.push("# redis.conf; it keeps 32 descriptors for itself:".to_owned());
            out.push(format!("maxclients {}", limit.saturating_sub(32)));
        }
        _ => {}
    }
    out
}

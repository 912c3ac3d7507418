//! What does a run say that several limits ask about?

use model::observation::{Cgroup, HostReading, ProcessSettings, TcpCounters};
use model::result::{Finding, Side, Stage, Status};
use model::{Estimate, FailureKind, Group, Latency, RunResult, units};

/// From here on a SYN must have been sent again.
const SYN_RETRY_MS: f64 = 1_000.0;

/// The status that a ceiling alone gives: near if the run came to 90% of it, or asked for more.
pub(crate) fn status_by_ceiling(run: &RunResult, ceiling: u64) -> Status {
    if ceiling < asked(run) || peak(run) as f64 >= 0.9 * ceiling as f64 {
        Status::Near
    } else {
        Status::Clear
    }
}

/// Puts the ceiling into a finding, and where it is lower than what is asked and was not met, the words for
/// it.
pub(crate) fn with_ceiling(mut finding: Finding, run: &RunResult, ceiling: u64) -> Finding {
    finding.ceiling_connections = Some(ceiling);
    if finding.status == Status::Near && ceiling < asked(run) {
        let (stop, asked) = (units::count(ceiling), units::count(asked(run)));
        finding.summary = format!("would stop at {stop} of {asked} asked: {}", finding.summary);
    }
    finding
}

/// How many connections were asked for (the most to try, with `until_it_breaks`).
pub(crate) fn asked(run: &RunResult) -> u64 {
    run.connections.requested.max(run.spec.connections)
}

/// The most connections that were ready at once.
pub(crate) fn peak(run: &RunResult) -> u64 {
    let stages = run.stages.iter().map(|s| s.ready.max(s.verified));
    let series = run.series.iter().map(|m| m.ready);
    stages.chain(series).chain([run.connections.held]).max().unwrap_or(0)
}

/// Whether the run has not begun: a doctor's.
pub(crate) fn not_begun(run: &RunResult) -> bool {
    run.stages.is_empty() && run.connections.opened == 0 && run.connections.failed.is_empty()
}

/// Failures of the given kinds over the whole run.
pub(crate) fn failures(run: &RunResult, kinds: &[FailureKind]) -> u64 {
    let of = |kind: &FailureKind| {
        let staged: u64 = run.stages.iter().filter_map(|s| s.failed.get(kind)).sum();
        run.connections.failed.get(kind).copied().unwrap_or(0).max(staged)
    };
    kinds.iter().map(of).sum()
}

/// Failures of the given kinds in one stage.
pub(crate) fn stage_failures(stage: &Stage, kinds: &[FailureKind]) -> u64 {
    kinds.iter().filter_map(|kind| stage.failed.get(kind)).sum()
}

/// The first words that came with a kind of failure; `None`: it left none.
pub(crate) fn words(run: &RunResult, kind: FailureKind) -> Option<&str> {
    run.connections.failed_example.get(&kind).map(|words| words.trim()).filter(|words| !words.is_empty())
}

/// "13 were reset" for each kind, the most frequent first, joined by commas; "" without failures.
pub(crate) fn failures_said(failed: impl Iterator<Item = (FailureKind, u64)>) -> String {
    let mut failed: Vec<_> = failed.filter(|(_, n)| *n > 0).collect();
    failed.sort_by_key(|&(kind, n)| (u64::MAX - n, kind));
    let said: Vec<String> =
        failed.iter().map(|(kind, n)| format!("{} {}", units::count(*n), kind.says())).collect();
    said.join(", ")
}

/// "1 destination", "3 destinations".
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", units::count(n), if n == 1 { one } else { many })
}

/// A count, or that it could not be read.
pub(crate) fn number(n: Option<u64>) -> String {
    n.map_or("unknown".to_owned(), units::count)
}

/// "once", "860 times".
pub(crate) fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{} times", units::count(n)) }
}

/// Stages that did not pass, with their numbers from 1.
pub(crate) fn failed_stages(run: &RunResult) -> impl Iterator<Item = (usize, &Stage)> {
    run.stages.iter().enumerate().filter(|(_, s)| !s.passed).map(|(i, s)| (i + 1, s))
}

/// The target's readings after the first connection, with what they were taken at: "stage 3", "the end".
pub(crate) fn target_readings(run: &RunResult) -> impl Iterator<Item = (String, &Group)> {
    let stages = run.stages.iter().enumerate();
    let staged = stages.filter_map(|(i, s)| s.target.as_ref().map(|g| (format!("stage {}", i + 1), g)));
    staged.chain(run.after.target.as_ref().map(|g| ("the end".to_owned(), g)))
}

/// Readings of the host after the first connection, with what they were taken at.
pub(crate) fn host_readings(run: &RunResult) -> impl Iterator<Item = (String, &HostReading)> {
    let staged = run.stages.iter().enumerate().map(|(i, s)| (format!("stage {}", i + 1), &s.host));
    // A run that has not begun has no end.
    staged.chain((!not_begun(run)).then(|| ("the end".to_owned(), &run.after.host)))
}

/// The highest of the host's readings after the first connection, and where it was read.
pub(crate) fn highest(
    run: &RunResult,
    reading: impl Fn(&HostReading) -> Option<u64>,
) -> Option<(String, u64)> {
    host_readings(run).filter_map(|(at, host)| Some((at, reading(host)?))).max_by_key(|(_, n)| *n)
}

/// A finding about the host that is observed: where the target is elsewhere, that is the generator's alone.
pub(crate) fn of_this_host(mut finding: Finding, run: &RunResult) -> Finding {
    if !run.settings.same_host {
        finding.side = Side::Client;
        finding.summary = format!("the generator's host: {}", finding.summary);
    }
    finding
}

/// Readings of the target's cgroup after the first connection.
pub(crate) fn target_cgroups(run: &RunResult) -> impl Iterator<Item = &Cgroup> {
    target_readings(run).filter_map(|(_, g)| g.cgroup.as_ref())
}

/// By how much a counter grew from `before` to the largest of the later readings; `None`: not readable.
pub(crate) fn rise(before: Option<u64>, later: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let before = before?;
    later.flatten().max().map(|most| most.saturating_sub(before))
}

/// By how much one of the kernel's TCP counters rose during the run; `None`: not readable.
pub(crate) fn counted_rise(run: &RunResult, counter: impl Fn(&TcpCounters) -> Option<u64>) -> Option<u64> {
    let later = run.stages.iter().map(|s| &s.tcp).chain([&run.after.tcp]);
    rise(counter(&run.before.tcp), later.map(&counter))
}

/// The stages in which a TCP counter rose.
pub(crate) fn stages_with_a_rise(
    run: &RunResult,
    counter: impl Fn(&TcpCounters) -> Option<u64>,
) -> impl Iterator<Item = &Stage> {
    let mut before = counter(&run.before.tcp);
    run.stages.iter().filter(move |stage| {
        let now = counter(&stage.tcp);
        let rose = now.zip(before).is_some_and(|(now, before)| now > before);
        before = now.or(before);
        rose
    })
}

/// Whether connecting took so long that a SYN must have been sent again.
pub(crate) fn syn_was_retried(latency: Option<Latency>) -> bool {
    latency.is_some_and(|l| l.p99_ms >= SYN_RETRY_MS)
}

/// How long connections took to open; to become ready, where that is all that was seen.
pub(crate) fn tcp_latency(run: &RunResult) -> Option<Latency> {
    run.establish.phases.get("tcp").or_else(|| run.establish.phases.get("ready")).copied()
}

/// How often the target's cgroup had a process killed for want of memory during the run.
///
/// Once its last process was killed, a cgroup's own counter can no longer be found. Then the host's kills are taken for
/// those of a limited group, unless the host was short itself.
pub(crate) fn cgroup_oom_kills(run: &RunResult) -> u64 {
    let limited = run.before.target.as_ref().and_then(|g| g.cgroup.as_ref());
    let counted = rise(limited.map_or(Some(0), |c| c.oom_kills), target_cgroups(run).map(|c| c.oom_kills));
    let gone = run.after.target.as_ref().is_some_and(|g| g.processes == 0 && g.cgroup.is_none());
    match counted {
        None | Some(0)
            if gone && limited.is_some_and(|c| c.memory_limit_bytes.is_some()) && !host_was_short(run) =>
        {
            host_oom_kills(run).unwrap_or(0)
        }
        counted => counted.unwrap_or(0),
    }
}

/// Whether less than a tenth of the host's memory was available at any time; what cannot be read counts as short.
pub(crate) fn host_was_short(run: &RunResult) -> bool {
    let ends = [&run.before.host, &run.after.host].into_iter();
    let least = ends.chain(run.stages.iter().map(|s| &s.host)).filter_map(|h| h.memory_available_bytes).min();
    least.is_none_or(|least| (least as f64) < 0.1 * run.host.memory_bytes as f64)
}

/// How often the host killed a process for want of memory during the run; `None`: not readable.
pub(crate) fn host_oom_kills(run: &RunResult) -> Option<u64> {
    let later = run.stages.iter().map(|s| s.host.oom_kills).chain([run.after.host.oom_kills]);
    rise(run.before.host.oom_kills, later)
}

/// How the target's processes ended during the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Death {
    /// When connections began to fail, from the start of the run; `None`: not seen.
    pub(crate) t_seconds: Option<f64>,
    /// Processes before.
    pub(crate) before: u64,
    /// Processes after; `None`: a target that cannot be seen, known to be gone by its refusals.
    pub(crate) after: Option<u64>,
}

/// Whether the target died: all of its processes are gone, some are gone and connections broke with them, or,
/// where they cannot be seen, it refused everything after it had held some.
pub(crate) fn death(run: &RunResult) -> Option<Death> {
    use FailureKind::{Closed, ClosedEarly, Refused, Reset, Silent};
    if run.stages.is_empty() || peak(run) == 0 {
        return None;
    }
    let broken = failures(run, &[Reset, Closed, ClosedEarly, Silent]);
    let before = run.before.target.as_ref().map_or(0, |g| g.processes);
    let after = run.after.target.as_ref().map_or(0, |g| g.processes);
    let seen_gone = before > 0 && broken + failures(run, &[Refused]) > 0 && after < before;
    // A pool of processes may shrink on its own: those that ended must have taken connections along.
    let gone = seen_gone && (after == 0 || failures(run, &[Reset, Closed]) > 0);
    let refuses = before == 0 && run.connections.held == 0 && broken > 0 && failures(run, &[Refused]) > 0;
    let t_seconds = first_failure(run, &[Reset, Closed, ClosedEarly, Silent, Refused]);
    (gone || refuses).then_some(Death { t_seconds, before, after: (before > 0).then_some(after) })
}

/// When the first failure of the given kinds was seen.
pub(crate) fn first_failure(run: &RunResult, kinds: &[FailureKind]) -> Option<f64> {
    let met = |failed: &std::collections::BTreeMap<FailureKind, u64>| {
        kinds.iter().any(|kind| failed.get(kind).is_some_and(|n| *n > 0))
    };
    run.series.iter().find(|m| met(&m.failed)).map(|m| m.t_seconds)
}

/// The program that accepts for the target: "nginx"; `None`: none can be seen, or they are several.
pub(crate) fn target_name(run: &RunResult) -> Option<&str> {
    let mut programs = run.settings.target.iter().map(|p| p.name.as_str());
    let accepting = programs.next();
    // of several programs that accept nobody knows whose setting it is
    if programs.any(|name| Some(name) != accepting) {
        return None;
    }
    let any = || run.target.processes.first().map(|p| p.name.as_str());
    accepting.or_else(any).filter(|name| !name.is_empty())
}

/// The first line of somebody's words, not too long. What matters stands at the end of what servers pass on of others.
pub(crate) fn quoted(words: &str) -> String {
    const LONGEST: usize = 240;
    let line = words.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(LONGEST).collect();
    if cut.len() < line.len() { cut + "…" } else { cut }
}

/// Why nothing is known of the target's processes, and how to change that.
pub(crate) fn hidden(run: &RunResult) -> String {
    let default = "the target's processes cannot be seen from here; run `plimsoll observe` on their host, as their user or as root, and name it with --observer";
    run.settings.target_hidden.clone().unwrap_or_else(|| default.to_owned())
}

/// The lowest soft descriptor limit among the given processes.
pub(crate) fn lowest_nofile(processes: &[ProcessSettings]) -> Option<u64> {
    processes.iter().filter_map(|p| p.nofile_soft).min()
}

/// A cost with its interval, as a ceiling's denominator: never below zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Each {
    /// The estimate.
    pub(crate) value: f64,
    /// The least it may be; `None` where some part has no interval.
    pub(crate) low: Option<f64>,
    /// The most it may be.
    pub(crate) high: Option<f64>,
}

impl Each {
    /// The sum of all parts: their intervals' ends are added, which is wider than need be, never narrower.
    pub(crate) fn sum(parts: &[Estimate]) -> Self {
        let add = |end: fn(&Estimate) -> Option<f64>| {
            parts.iter().map(|e| end(e).map(|x| x.max(0.0))).sum::<Option<f64>>()
        };
        let value = parts.iter().map(|e| e.value.max(0.0)).sum();
        Self { value, low: add(|e| e.low), high: add(|e| e.high) }
    }

    /// The same, where one takes at least so much of its kind: a file, an entry.
    pub(crate) fn at_least(self, floor: f64) -> Self {
        let up = |x: f64| x.max(floor);
        Self { value: up(self.value), low: self.low.map(up), high: self.high.map(up) }
    }

    /// How many of these fit into `room`; `None` where each one costs less than one byte, file or entry.
    pub(crate) fn fit_into(&self, room: f64) -> Option<u64> {
        fits(room, self.value)
    }

    /// Puts the ceiling that `room` allows, and its interval, into a finding.
    pub(crate) fn ceiling(&self, finding: Finding, run: &RunResult, room: f64) -> Finding {
        let Some(ceiling) = self.fit_into(room) else { return finding };
        let mut finding = with_ceiling(finding, run, ceiling);
        finding.ceiling_low = self.high.and_then(|each| fits(room, each));
        finding.ceiling_high = self.low.and_then(|each| fits(room, each));
        finding
    }
}

fn fits(room: f64, each: f64) -> Option<u64> {
    (each >= 1.0).then(|| (room.max(0.0) / each) as u64)
}

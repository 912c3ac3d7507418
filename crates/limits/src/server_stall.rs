//! Do all connections stop at once for a while?

use model::result::{Finding, Moment, Side, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence};

/// A pause of the whole server.
pub(crate) struct ServerStall;

static FACTS: LimitFacts = LimitFacts {
    id: "server.stall",
    side: Side::Server,
    question: "Do all connections stop at once for a while?",
    doc: "A collector's pause, a lock that all wait for, a disk that blocks the only thread or a virtual \
          machine that is stopped: for a while nobody is answered, and then all are, late. Averages hide it; \
          heartbeats that count from their intended time do not.",
    how_to_see: "jstat -gcutil PID 1s; strace -f -T -p PID; perf trace -p PID; vmstat 1 (column st)",
    remedy_doc: "Find what stops it: collections, a lock, a blocking call, a stopped process or machine.",
};

/// A shorter pause is not told from an ordinary delay.
const SHORTEST_SECONDS: f64 = 0.5;

/// Fewer heartbeats than this may all be late by chance.
const MANY: f64 = 5.0;

/// A while in which no heartbeat was answered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stall {
    /// When it began, from the start of the run, as near as the moments tell.
    began: f64,
    /// How long the longest wait was.
    seconds: f64,
    /// Heartbeats that came due meanwhile, about.
    due: f64,
    /// Whether they were answered in the end.
    ended: bool,
}

impl Limit for ServerStall {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let longest = run.heartbeat.latency.map(|l| l.max_ms);
        let stall = stall(run);
        let objective = run.spec.objective_seconds;
        let said = |stall: &Stall| {
            let (began, seconds) = (units::seconds(stall.began), units::seconds(stall.seconds));
            match stall.ended {
                true => format!("nothing was answered on any connection for {seconds} at {began}"),
                false => {
                    format!("nothing was answered on any connection from {began} on, for {seconds} and more")
                }
            }
        };
        let (status, summary) = match (&stall, longest) {
            _ if run.spec.heartbeat_seconds.is_none() => {
                (Status::Unknown, "without heartbeats nobody asks while connections are held".to_owned())
            }
            (Some(stall), _) if stall.seconds >= objective => (Status::Hit, said(stall)),
            (Some(stall), _) => (
                Status::Clear,
                format!("{}, within the objective of {}", said(stall), units::seconds(objective)),
            ),
            (None, None) => (Status::Unknown, "no heartbeat was answered yet".to_owned()),
            (None, Some(ms)) => (
                Status::Clear,
                format!("heartbeats never stopped together; the slowest took {}", units::milliseconds(ms)),
            ),
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, stall.as_ref());
        finding.remedy = remedy(run, stall.as_ref());
        finding
    }
}

/// The longest stall that was the target's own; none, if it died or the generator was late itself.
fn stall(run: &RunResult) -> Option<Stall> {
    if evidence::death(run).is_some() {
        return None;
    }
    let interval = run.spec.heartbeat_seconds.filter(|s| *s > 0.0)?;
    let quiet = |m: &Moment| matches!(m.doing.as_str(), "settle" | "hold");
    let series = &run.series;
    let mut longest: Option<Stall> = None;
    for (at, moment) in series.iter().enumerate().skip(1) {
        let Some(longest_wait) = moment.beat_max_ms.map(|ms| ms / 1e3).filter(|s| *s >= SHORTEST_SECONDS)
        else {
            continue;
        };
        // Moments before it in which nobody was answered.
        let silent = series[..at].iter().rev().take_while(|m| silent_at(m)).count();
        let first = at - silent;
        let Some(before) = first.checked_sub(1).map(|i| &series[i]) else { continue };
        let silence = series[at - 1].t_seconds - before.t_seconds;
        let due = before.ready as f64 * longest_wait / interval;
        let all_silent = silent > 0 && silence >= SHORTEST_SECONDS && longest_wait >= 0.8 * silence;
        // Shorter than from moment to moment: it shows as half of a moment's answers late, out of the blue.
        let wave = |m: &Moment| m.beat_p50_ms.is_some_and(|ms| ms / 1e3 >= 0.25 * longest_wait);
        let ordinary = |m: Option<&Moment>| m.is_none_or(|m| !wave(m));
        let sudden = silent == 0
            && quiet(moment)
            && wave(moment)
            && ordinary(Some(before))
            && ordinary(series.get(at + 1));
        let lag = series[first..=at].iter().filter_map(|m| m.generator_lag_ms).fold(0.0, f64::max) / 1e3;
        let ours = lag >= 0.25 * longest_wait;
        if due >= MANY && (all_silent || sudden) && !ours && longest.is_none_or(|l| l.seconds < longest_wait)
        {
            let began = (moment.t_seconds - longest_wait).max(before.t_seconds);
            longest = Some(Stall { began, seconds: longest_wait, due, ended: true });
        }
    }
    longest.or_else(|| for_good(run, interval))
}

/// Whether nobody was answered since the moment before; while connections come, a server has other things to
/// do.
fn silent_at(moment: &Moment) -> bool {
    moment.beats_answered == 0 && moment.verified == 0 && moment.ready > 0 && moment.doing != "establish"
}

/// A stall that did not end before the run did: all connections stopped answering, and the target still
/// lives.
fn for_good(run: &RunResult, interval: f64) -> Option<Stall> {
    let series: Vec<&Moment> = run.series.iter().filter(|m| m.doing != "drain").collect();
    // At the very end all connections have been given up, and none is ready.
    let open = series.iter().rposition(|m| m.ready > 0)?;
    let silent = series[..=open].iter().rev().take_while(|m| silent_at(m)).count();
    let last_answered = open.checked_sub(silent)?;
    let before = series[last_answered];
    let seconds = series[open].t_seconds - before.t_seconds;
    let lag = series[last_answered..=open].iter().filter_map(|m| m.generator_lag_ms).fold(0.0, f64::max);
    let given_up = evidence::failures(run, &[FailureKind::Silent]);
    let all = given_up > 0 && given_up as f64 >= 0.9 * before.ready as f64;
    let due = before.ready as f64 * seconds / interval;
    let lasted = seconds >= SHORTEST_SECONDS && due >= MANY && lag / 1e3 < 0.25 * seconds;
    (all && lasted).then_some(Stall { began: before.t_seconds, seconds, due, ended: false })
}

/// By how many seconds the time in collections rose in the stage in which it stalled.
fn collecting(run: &RunResult, stall: &Stall) -> Option<(usize, f64)> {
    let index = run.stages.iter().rposition(|s| s.t_seconds <= stall.began)?;
    let of = |group: Option<&model::Group>| group?.heap.as_ref()?.collection_seconds;
    let before = match index.checked_sub(1) {
        None => run.before.target.as_ref(),
        Some(last) => run.stages[last].target.as_ref(),
    };
    let rose = of(run.stages[index].target.as_ref())? - of(before)?;
    (rose > 0.0).then_some((index + 1, rose))
}

fn read(run: &RunResult, stall: Option<&Stall>) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(latency) = run.heartbeat.latency {
        out.push(format!(
            "heartbeats, from their intended time: median {}, longest {}",
            units::milliseconds(latency.p50_ms),
            units::milliseconds(latency.max_ms)
        ));
    }
    let Some(stall) = stall else { return out };
    let late = match stall.ended {
        true => format!("; then all were, up to {} late", units::seconds(stall.seconds)),
        false => ", until all connections were given up".to_owned(),
    };
    out.push(format!(
        "from {} on about {} heartbeats came due and none was answered{late}",
        units::seconds(stall.began),
        units::count(stall.due as u64)
    ));
    let lag = run.series.iter().filter_map(|m| m.generator_lag_ms).reduce(f64::max);
    out.extend(
        lag.map(|ms| format!("the generator's own loop was never later than {}", units::milliseconds(ms))),
    );
    let lag = evidence::target_readings(run).filter_map(|(_, g)| g.event_loop_lag_seconds).reduce(f64::max);
    out.extend(
        lag.map(|s| format!("its event loop came up to {} late, by its own metrics", units::seconds(s))),
    );
    if let Some((number, seconds)) = collecting(run, stall) {
        out.push(format!("collections of its heap took {} in stage {number}", units::seconds(seconds)));
    }
    out
}

fn remedy(run: &RunResult, stall: Option<&Stall>) -> Vec<String> {
    let pid = run.settings.target.first().map_or("PID".to_owned(), |p| p.pid.to_string());
    let collected = stall.is_some_and(|stall| collecting(run, stall).is_some());
    let mut out = vec!["# find what stops it; while it happens:".to_owned()];
    if collected || evidence::target_name(run) == Some("java") {
        out.push("# collections: start it with -Xlog:gc,safepoint, and look with".to_owned());
        out.push(format!("# jstat -gcutil {pid} 1s"));
        out.push("# then a collector with short pauses (-XX:+UseZGC), or a larger -Xmx".to_owned());
    }
    out.push(format!("# what its threads wait for: timeout 10 strace -f -T -p {pid}"));
    out.push(format!("# where its time goes: perf record -g -p {pid} -- sleep 10"));
    out.push(format!("# whether it was stopped (SIGSTOP, a debugger): grep State /proc/{pid}/status"));
    out.push("# whether its machine was: vmstat 1 (column st), journalctl -k".to_owned());
    out
}

//! Are the server's processors full?

use model::result::{Finding, Side, Stage, Status};
use model::{Estimate, FailureKind, RunResult, units};

use crate::busy::{self, Full};
use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, cgroup, server_nofile};

/// The CPUs that the target may use, or the one that its only thread can.
pub(crate) struct ServerCpu;

static FACTS: LimitFacts = LimitFacts {
    id: "server.cpu",
    side: Side::Server,
    question: "Are the server's processors full?",
    doc: "Heartbeats cost the server time. When all CPUs that it may use are full, or the one that its only \
          busy thread can use, answers come ever later, and at last too late.",
    how_to_see: "top -H -p PID; cat /sys/fs/cgroup/.../cpu.max cpu.stat",
    remedy_doc: "More threads or processes that serve, a higher CPU quota, less frequent heartbeats.",
};

/// How connections fail on a server that is too slow.
const SLOW: [FailureKind; 3] = [FailureKind::Silent, FailureKind::ReadyTimeout, FailureKind::ConnectTimeout];

/// A quota that holds the target back for this share of a stage is used up.
const HELD_BACK: f64 = 0.1;

impl Limit for ServerCpu {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        if run.before.target.is_none() {
            let mut finding = FACTS.finding(Status::Unknown, evidence::hidden(run));
            finding.remedy = remedy(run);
            return finding;
        }
        let usable = busy::usable(run);
        let each = each(run);
        let ceiling = each.and_then(|each| each.fit_into(usable * NANO));
        let strained = (0..run.stages.len()).filter_map(|i| strained(run, i)).collect::<Vec<_>>();
        let met = strained.iter().find(|s| s.late);
        let most = most_used(run);
        let (status, summary) = match (met, most) {
            (Some(met), _) => {
                (Status::Hit, format!("in stage {} {}, and it was too slow", met.number, met.says))
            }
            (None, None) => (
                Status::Unknown,
                "unknown until measured: what connections cost the target shows under load".to_owned(),
            ),
            (None, Some(most)) => {
                let when = if run.sweep.is_some() { "while clients worked" } else { "while held" };
                let summary = format!("the target used at most {most:.2} of {usable:.2} CPUs {when}");
                let full = most >= 0.9 * usable;
                let status = ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c));
                (if full { Status::Near } else { status }, summary)
            }
        };
        let mut finding = FACTS.finding(status, summary);
        if let Some(each) = each {
            finding = each.ceiling(finding, run, usable * NANO);
        }
        finding.evidence = read(run, &strained, usable, each);
        finding.remedy = remedy(run);
        finding
    }
}

/// CPU is counted in billionths here: a connection may cost less than a millionth.
const NANO: f64 = 1e9;

/// What one more held connection costs, in billionths of a CPU; `None` where the slope may as well be none.
fn each(run: &RunResult) -> Option<Each> {
    /// Below this the ticks of a quiet second are too coarse for a slope.
    const TELLING_CPUS: f64 = 0.05;
    let cost = run.cost.target.cpu_seconds_per_second;
    let slope = cost.per_connection.filter(|e| e.low.is_some_and(|low| low > 0.0))?;
    cost.idle_stage.filter(|cpus| *cpus >= TELLING_CPUS)?;
    let nano = |x: f64| x * NANO;
    Some(Each::sum(&[Estimate {
        value: nano(slope.value),
        low: slope.low.map(nano),
        high: slope.high.map(nano),
        ..slope
    }]))
}

/// The most CPU that the target used in the quiet part of a stage; of a sweep, while clients worked.
fn most_used(run: &RunResult) -> Option<f64> {
    let idle = run.stages.iter().filter_map(|s| s.idle);
    let worked = run.sweep.iter().flat_map(|sweep| &sweep.points).map(|point| point.cpu);
    let seen = idle.chain(worked).filter(|part| part.seconds > 0.0);
    seen.filter_map(|idle| Some(idle.target_cpu_seconds? / idle.seconds)).reduce(f64::max)
}

/// A stage in which the target was full.
struct Strained {
    /// From 1.
    number: usize,
    /// Whether it failed its objective, or answers were late.
    late: bool,
    /// How it was full.
    says: String,
}

fn strained(run: &RunResult, index: usize) -> Option<Strained> {
    let stage = &run.stages[index];
    let seen = busy::moments(run, index).filter(|m| m.target_cpus.is_some()).count();
    let full: Vec<Full> = busy::moments(run, index).filter_map(|m| busy::full(run, m)).collect();
    let all = full.iter().filter(|f| **f == Full::All).count();
    let lasting = full.len() >= 2 && full.len() * 2 >= seen;
    let allowed = busy::allowed(run);
    let says = if lasting && all * 2 >= full.len() {
        format!("all {allowed:.2} CPUs that the target may use were full")
    } else if lasting {
        "one thread of the target filled a CPU".to_owned()
    } else {
        let share = throttled(run, index)? / busy::seconds(stage);
        if share < HELD_BACK || !share.is_finite() {
            return None;
        }
        format!("its CPU quota held the target back for {:.0}% of the time", share * 100.0)
    };
    Some(Strained { number: index + 1, late: late(run, index, stage), says })
}

/// Seconds in a stage for which the target's CPU quota held it back.
fn throttled(run: &RunResult, index: usize) -> Option<f64> {
    let of = |group: Option<&model::Group>| group?.cgroup.as_ref()?.throttled_seconds;
    let before = match index.checked_sub(1) {
        None => of(run.before.target.as_ref()),
        Some(last) => of(run.stages[last].target.as_ref()),
    };
    Some(of(run.stages[index].target.as_ref())? - before?)
}

/// Whether a stage failed as a slow server makes it fail, or was answered later than the objective.
fn late(run: &RunResult, index: usize, stage: &Stage) -> bool {
    let objective_ms = run.spec.objective_seconds * 1e3;
    // One that is out of descriptors spins in accept().
    if server_nofile::met(run).is_some() {
        return false;
    }
    let slow = !stage.passed && (stage.failed.is_empty() || evidence::stage_failures(stage, &SLOW) > 0);
    let beats = || busy::moments(run, index).filter_map(|m| m.beat_p99_ms).any(|ms| ms > objective_ms);
    slow || stage.latency.is_some_and(|l| l.max_ms > objective_ms) || beats()
}

fn read(run: &RunResult, strained: &[Strained], usable: f64, each: Option<Each>) -> Vec<String> {
    let mut out = Vec::new();
    const QUOTED: usize = 3;
    for strained in strained.iter().take(QUOTED) {
        let late = if strained.late { "; answers were late" } else { "; answers came in time" };
        out.push(format!("stage {}: {}{late}", strained.number, strained.says));
    }
    let peak =
        |of: fn(&model::result::Moment) -> Option<f64>| run.series.iter().filter_map(of).reduce(f64::max);
    if let Some(all) = peak(|m| m.target_cpus) {
        let busiest =
            peak(|m| m.target_busiest_cpus).map_or(String::new(), |b| format!("; its busiest thread {b:.2}"));
        out.push(format!("the target's processes used up to {all:.2} CPUs at a moment{busiest}"));
    }
    let single = if busy::single_threaded(run) { ": one thread does nearly all its work" } else { "" };
    out.push(format!("the target can use {usable:.2} CPUs{single}"));
    if let Some(cpus) = run.before.target.as_ref().and_then(|g| g.cgroup.as_ref()).and_then(|c| c.cpu_limit) {
        out.push(format!("its cgroup allows it {cpus:.2} CPUs"));
    }
    if let Some(each) = each {
        out.push(format!("each connection costs {:.2} µs of CPU a second", each.value / 1e3));
    }
    out
}

fn remedy(run: &RunResult) -> Vec<String> {
    let mut out = cgroup::all_cpus_for_target(run);
    let cpus = run.host.cpus.max(1);
    out.push(match evidence::target_name(run) {
        Some("nginx") => "worker_processes auto; # nginx.conf, at the top".to_owned(),
        Some("haproxy") => format!("nbthread {cpus} # haproxy.cfg, in global"),
        Some("redis-server" | "valkey-server") => {
            format!("io-threads {} # redis.conf, then restart; or several of it in a cluster", cpus.max(2))
        }
        Some("node") => {
            "# node runs one thread: start it with the cluster module, or one process per CPU (pm2 -i max)"
                .to_owned()
        }
        _ => "# let more threads or processes of the server accept and serve, at most one per CPU".to_owned(),
    });
    if let Some(interval) = run.spec.heartbeat_seconds {
        out.push("# less frequent heartbeats cost less:".to_owned());
        out.push(format!(
            "plimsoll hold {} -c {} --heartbeat {:.0}s",
            run.target.url,
            evidence::asked(run),
            (interval * 3.0).ceil()
        ));
    } else {
        let cpus = units::count(u64::from(cpus) * 2);
        out.push(format!("# or more CPUs: {cpus} in place of {}", run.host.cpus));
    }
    out
}

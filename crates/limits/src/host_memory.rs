//! Does the host run out of memory?

use model::result::{Finding, Side, Status};
use model::{Estimate, FailureKind, RunResult, units};

use crate::evidence::{self, Each};
use crate::sides::share_a_host;
use crate::{Limit, LimitFacts, client_memory, nice};

/// Memory of the host that is observed: the generator's, and the target's where both share one.
pub(crate) struct HostMemory;

static FACTS: LimitFacts = LimitFacts {
    id: "host.memory",
    side: Side::Host,
    question: "Does the host run out of memory?",
    doc: "Each connection takes user memory of its process and kernel memory for its socket. When the host \
          runs out, it first reclaims (everything stalls), then kills a process.",
    how_to_see: "grep -E 'MemAvailable|Slab' /proc/meminfo; cat /proc/pressure/memory; grep oom_kill \
        /proc/vmstat",
    remedy_doc: "More memory, less per connection, or more hosts.",
};

/// The least that one loopback connection takes of the kernel, both ends, in bytes: 5.2 KB by what was free
/// before and after, 7.8 KB by the objects counted in /proc/slabinfo (Linux 6.18).
const LOOPBACK_FLOOR: Estimate =
    Estimate { value: 7_800.0, low: Some(5_200.0), high: Some(7_800.0), stages: 0 };

/// Memory available below this share of all is short.
const SHORT: f64 = 0.03;

/// Waiting for memory for this share of the run is large.
const LARGE_PRESSURE: f64 = 0.1;

impl Limit for HostMemory {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let available = run.before.host.memory_available_bytes;
        let each = each(run);
        let status = pressed(run);
        let mut finding = match (available, each) {
            (None, _) => {
                FACTS.finding(status.unwrap_or(Status::Unknown), "the host's memory could not be read")
            }
            (Some(_), Per::Unknown(why)) => FACTS.finding(status.unwrap_or(Status::Unknown), why),
            (Some(available), Per::Measured(each)) => {
                let by_ceiling = each.fit_into(available as f64).map(|c| evidence::status_by_ceiling(run, c));
                let summary = format!(
                    "{} available, {} for each connection",
                    units::bytes(available as f64),
                    units::bytes(each.value)
                );
                let finding = FACTS.finding(status.or(by_ceiling).unwrap_or(Status::Clear), summary);
                each.ceiling(finding, run, available as f64)
            }
            (Some(available), Per::AtLeast(each)) => {
                let by_ceiling = each.fit_into(available as f64).map(|c| evidence::status_by_ceiling(run, c));
                // Room for what it takes at least is not yet room.
                let by_ceiling = by_ceiling.filter(|status| *status == Status::Near);
                let summary = format!(
                    "{} available, at least 5.2 to 7.8 kB for each connection; more is not known until \
                        measured",
                    units::bytes(available as f64)
                );
                let finding = FACTS.finding(status.or(by_ceiling).unwrap_or(Status::Unknown), summary);
                each.ceiling(finding, run, available as f64)
            }
        };
        finding = evidence::of_this_host(finding, run);
        finding.evidence = read(run, each);
        finding.remedy = remedy(run, each);
        finding
    }
}

/// What one connection takes of the host's memory.
#[derive(Debug, Clone, Copy)]
enum Per {
    /// Fitted.
    Measured(Each),
    /// Not fitted, but loopback connections cannot take less than this.
    AtLeast(Each),
    /// Not known.
    Unknown(&'static str),
}

fn each(run: &RunResult) -> Per {
    let cost = &run.cost;
    let own = cost.generator.user_bytes_per_connection;
    let nothing = Estimate { value: 0.0, low: Some(0.0), high: Some(0.0), stages: 0 };
    let parts = if share_a_host(run) {
        [cost.target.user_bytes_per_connection, own, cost.shared_kernel_bytes_per_connection]
    } else if run.settings.same_host {
        [cost.target.user_bytes_per_connection, Some(nothing), cost.target.kernel_bytes_per_connection]
    } else {
        [Some(nothing), own, cost.generator.kernel_bytes_per_connection]
    };
    let known: Vec<Estimate> = parts.into_iter().flatten().collect();
    let sum = Each::sum(&known);
    if known.len() == parts.len() && sum.value >= 1.0 {
        Per::Measured(sum)
    } else if share_a_host(run) {
        Per::AtLeast(Each::sum(&[LOOPBACK_FLOOR]))
    } else {
        Per::Unknown("unknown until measured: hold some connections first")
    }
}

/// `Hit` if the host killed a process or ran short under pressure, `Near` if little was left; `None`:
/// neither.
fn pressed(run: &RunResult) -> Option<Status> {
    // A kill inside a limited cgroup counts on the host, too: that one is server.memory's, or client.memory's.
    let in_groups = evidence::cgroup_oom_kills(run) + client_memory::kills(run);
    let kills = evidence::host_oom_kills(run).unwrap_or(0).saturating_sub(in_groups);
    // So does one in a stranger's: unless the host was short or one of ours is gone, it says nothing of this run.
    let ours = evidence::death(run).is_some() || run.workers.iter().any(|w| w.died.is_some());
    if kills > 0 && (ours || evidence::host_was_short(run)) {
        return Some(Status::Hit);
    }
    let left =
        least_available(run).filter(|_| run.host.memory_bytes > 0)? as f64 / run.host.memory_bytes as f64;
    if evidence::not_begun(run) {
        return None;
    }
    let waited =
        pressure_seconds(run).filter(|_| run.seconds > 0.0).is_some_and(|s| s / run.seconds > LARGE_PRESSURE);
    if left < SHORT && waited { Some(Status::Hit) } else { (left < 0.1).then_some(Status::Near) }
}

fn least_available(run: &RunResult) -> Option<u64> {
    let ends = [&run.before.host, &run.after.host].into_iter();
    ends.chain(run.stages.iter().map(|s| &s.host)).filter_map(|h| h.memory_available_bytes).min()
}

fn pressure_seconds(run: &RunResult) -> Option<f64> {
    let before = run.before.host.memory_pressure_seconds?;
    Some(run.after.host.memory_pressure_seconds? - before)
}

fn read(run: &RunResult, each: Per) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(before) = run.before.host.memory_available_bytes {
        let least = least_available(run).unwrap_or(before);
        out.push(format!(
            "MemAvailable {} before, {} at least, of {} in all",
            units::bytes(before as f64),
            units::bytes(least as f64),
            units::bytes(run.host.memory_bytes as f64)
        ));
    }
    let cost = &run.cost;
    for (what, estimate) in [
        (
            "user memory of the target",
            cost.target.user_bytes_per_connection.filter(|_| run.settings.same_host),
        ),
        ("user memory of the generator", cost.generator.user_bytes_per_connection),
        ("kernel memory of both ends", cost.shared_kernel_bytes_per_connection),
        ("kernel memory of the generator's end", cost.generator.kernel_bytes_per_connection),
    ] {
        if let Some(e) = estimate {
            out.push(format!("{what}: {} per connection, over {} stages", units::bytes(e.value), e.stages));
        }
    }
    if matches!(each, Per::AtLeast(_)) {
        out.push(
            "not measured: the floor of a loopback connection, 5,200 to 7,800 bytes for both ends in the \
            kernel (Linux 6.18)"
                .to_owned(),
        );
    }
    if let Some(kills) = evidence::host_oom_kills(run).filter(|n| *n > 0) {
        out.push(format!("/proc/vmstat: oom_kill rose by {kills}"));
    }
    if let Some(waited) = pressure_seconds(run).filter(|s| *s > 0.0) {
        out.push(format!(
            "some task waited for memory for {} of {}",
            units::seconds(waited),
            units::seconds(run.seconds)
        ));
    }
    let failed = evidence::failures(run, &[FailureKind::NoMemory]);
    if failed > 0 {
        out.push(format!("{} connections {}", units::count(failed), FailureKind::NoMemory.says()));
    }
    out
}

fn remedy(run: &RunResult, each: Per) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let available = run.before.host.memory_available_bytes.unwrap_or(0) as f64;
    let at_least = matches!(each, Per::AtLeast(_));
    let mut out = Vec::new();
    match each {
        Per::Measured(each) | Per::AtLeast(each) => {
            let needed = wanted as f64 * each.value;
            let word = if at_least { "at least " } else { "" };
            out.push(format!(
                "# {} connections need {word}{}; {} are available",
                units::count(wanted),
                units::bytes(needed),
                units::bytes(available)
            ));
            let hosts = (needed / available.max(1.0)).ceil();
            if available > 0.0 && hosts > 1.0 {
                out.push(format!(
                    "# that is {hosts:.0} hosts like this one, or one with {} more",
                    units::bytes(needed - available)
                ));
            }
        }
        Per::Unknown(_) => {
            out.push("# measure what one connection takes, then ask again:".to_owned());
            out.push(format!(
                "plimsoll hold {} -c {}",
                run.target.url,
                (evidence::asked(run) / 10).clamp(1, 10_000)
            ));
        }
    }
    if share_a_host(run) {
        out.push(
            "# run the generator on another machine: its share of the memory is then the target's".to_owned(),
        );
    }
    out.push("# find what else uses memory here:".to_owned());
    out.push("ps -eo pid,rss,comm --sort=-rss | head -n 15".to_owned());
    out
}

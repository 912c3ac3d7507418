//! Does the server meet its memory limit?

use analysis::cost;
use model::observation::Cgroup;
use model::result::{Finding, Side, Status};
use model::{Estimate, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, cgroup, nice};

/// The memory limit of the target's cgroup.
pub(crate) struct ServerMemory;

static FACTS: LimitFacts = LimitFacts {
    id: "server.memory",
    side: Side::Server,
    question: "Does the server meet its memory limit?",
    doc: "A container or a unit with a memory limit is killed when it exceeds it, long before the host is \
          full. In its cgroup the kernel's memory for its sockets counts as well.",
    how_to_see: "cat /sys/fs/cgroup/.../memory.max memory.current memory.events; dmesg | grep -i 'killed \
        process'",
    remedy_doc: "A higher MemoryMax, or less memory per connection.",
};

impl Limit for ServerMemory {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let Some(before) = run.before.target.as_ref() else {
            let mut finding = FACTS.finding(Status::Unknown, evidence::hidden(run));
            finding.remedy = remedy(run, None, None);
            return finding;
        };
        let limited = before
            .cgroup
            .iter()
            .chain(evidence::target_cgroups(run))
            .find(|c| c.memory_limit_bytes.is_some());
        let Some((cgroup, limit)) = limited.and_then(|c| Some((c, c.memory_limit_bytes?))) else {
            let summary = "no memory limit on the target's cgroup: it is bounded by host.memory";
            let mut finding = FACTS.finding(Status::Clear, summary);
            finding.remedy = remedy(run, None, None);
            return finding;
        };
        let used_before = before.cgroup.as_ref().and_then(|c| c.memory_bytes);
        let most = evidence::target_cgroups(run).filter_map(|c| c.memory_bytes).max();
        let each = each(run, cgroup);
        let room = used_before.map(|used| limit.saturating_sub(used) as f64);
        let ceiling = each.and_then(|each| each.fit_into(room?));

        let kills = evidence::cgroup_oom_kills(run);
        let full = most.or(used_before).map(|most| most as f64 / limit as f64);
        let failed = evidence::failed_stages(run).next().is_some() || run.connections.failed_total() > 0;
        let status = match full {
            _ if kills > 0 => Status::Hit,
            Some(full) if full >= 0.98 && failed => Status::Hit,
            Some(full) if full >= 0.9 => Status::Near,
            _ => ceiling.map_or(Status::Unknown, |c| evidence::status_by_ceiling(run, c)),
        };
        let summary = match (most, each) {
            _ if kills > 0 => format!(
                "a process of the target was killed for want of memory: its cgroup may use {}",
                units::bytes(limit as f64)
            ),
            (Some(most), Some(_)) => format!(
                "the target's cgroup used up to {} of {}",
                units::bytes(most as f64),
                units::bytes(limit as f64)
            ),
            _ => format!(
                "the target's cgroup may use {}; how many connections fit in is unknown until measured: \
                    hold some first",
                units::bytes(limit as f64)
            ),
        };
        let mut finding = FACTS.finding(status, summary);
        if let (Some(each), Some(room)) = (each, room) {
            finding = each.ceiling(finding, run, room);
        }
        finding.evidence = read(cgroup, limit, used_before, most, kills, each);
        finding.remedy = remedy(run, each.map(|e| e.value), Some((cgroup, limit, used_before.unwrap_or(0))));
        finding
    }
}

/// What one connection takes of the cgroup: the slope of its usage, or of what is known to be charged to it.
fn each(run: &RunResult, cgroup: &Cgroup) -> Option<Each> {
    let usage = |s: &model::result::Stage| Some(s.target.as_ref()?.cgroup.as_ref()?.memory_bytes? as f64);
    if let Some(slope) = cost::over(&cost::growing(run), usage).filter(|e| e.value >= 1.0) {
        return Some(Each::sum(&[slope]));
    }
    // Both ends' kernel memory is taken where it cannot be told apart: rather too low a ceiling than too
    // high.
    let shared = run.cost.shared_kernel_bytes_per_connection;
    let kernel = shared.or(run.cost.target.kernel_bytes_per_connection);
    let together =
        run.before.generator.as_ref().and_then(|g| g.cgroup.as_ref()).is_some_and(|c| c.path == cgroup.path);
    let generator = run.cost.generator.user_bytes_per_connection.filter(|_| together);
    let parts: Vec<Estimate> =
        [run.cost.target.user_bytes_per_connection?].into_iter().chain(kernel).chain(generator).collect();
    Some(Each::sum(&parts))
}

fn read(
    cgroup: &Cgroup,
    limit: u64,
    before: Option<u64>,
    most: Option<u64>,
    kills: u64,
    each: Option<Each>,
) -> Vec<String> {
    let written = |b: Option<u64>| b.map_or("unknown".to_owned(), |b| units::bytes(b as f64));
    let mut out = vec![format!(
        "cgroup {}: limit {}, used before {}, at most {}",
        cgroup.path,
        units::bytes(limit as f64),
        written(before),
        written(most)
    )];
    if kills > 0 {
        out.push(format!("its out-of-memory kills rose by {kills}"));
    }
    if let Some(each) = each {
        out.push(format!("each connection takes {} of it", units::bytes(each.value)));
    }
    out
}

/// What is asked of the target's cgroup, and what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// The limit that it has now.
    pub(crate) limit_bytes: u64,
    /// Connections for which that is enough.
    pub(crate) room: u64,
    /// The limit that it should have.
    pub(crate) wanted_megabytes: u64,
}

/// What a limited cgroup needs; `None`: there is none, or what a connection takes of it was not measured.
pub(crate) fn need(run: &RunResult) -> Option<Need> {
    let cgroup = run.before.target.as_ref()?.cgroup.as_ref()?;
    let (limit_bytes, used) = (cgroup.memory_limit_bytes?, cgroup.memory_bytes?);
    let each = each(run, cgroup)?;
    let room = each.fit_into(limit_bytes.saturating_sub(used) as f64)?;
    let needed = needed(run, Some(each.value), limit_bytes, used);
    Some(Need { limit_bytes, room, wanted_megabytes: megabytes(needed, limit_bytes) })
}

/// Bytes that the cgroup needs for what is asked; twice its limit where what a connection takes is unknown.
fn needed(run: &RunResult, each: Option<f64>, limit: u64, used: u64) -> u64 {
    let wanted = nice::lifted(evidence::asked(run)) as f64;
    each.map_or(limit.saturating_mul(2), |each| used.saturating_add((wanted * each) as u64))
}

fn megabytes(needed: u64, limit: u64) -> u64 {
    nice::up(needed.max(limit).div_ceil(1 << 20))
}

fn remedy(run: &RunResult, each: Option<f64>, limited: Option<(&Cgroup, u64, u64)>) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let Some((cgroup, limit, used)) = limited else {
        return vec![
            "# nothing limits it but the host; to bound it yourself, in the server's unit:".to_owned(),
            "[Service]".to_owned(),
            format!("MemoryMax={}M", nice::up((run.host.memory_bytes / 2).div_ceil(1 << 20)).max(1)),
        ];
    };
    let needed = needed(run, each, limit, used);
    let megabytes = megabytes(needed, limit);
    let mut out = vec![
        format!("# {} connections need about {}", units::count(wanted), units::bytes(needed as f64)),
        "[Service]".to_owned(),
        format!("MemoryMax={megabytes}M"),
    ];
    if let Some(now) = cgroup::memory(cgroup, megabytes) {
        out.extend(["# or at once:".to_owned(), now]);
    }
    out
}

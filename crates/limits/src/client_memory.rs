//! Does the generator run out of memory?

use analysis::cost;
use model::observation::Cgroup;
use model::result::{Finding, Side, Status};
use model::{Estimate, FailureKind, Group, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, nice};

/// Memory of the generator's processes and of their ends of the connections.
pub(crate) struct ClientMemory;

static FACTS: LimitFacts = LimitFacts {
    id: "client.memory",
    side: Side::Client,
    question: "Does the generator run out of memory?",
    doc: "The generator's end of a connection takes memory as well: little of its processes, more of its \
          kernel. When its host or its cgroup has no more, socket() and connect() fail with ENOMEM or \
          ENOBUFS, or a worker is killed.",
    how_to_see: "grep MemAvailable /proc/meminfo; cat /sys/fs/cgroup/.../memory.max memory.current",
    remedy_doc: "Fewer connections on this machine, a higher limit of its cgroup, or another machine.",
};

impl Limit for ClientMemory {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let failed = evidence::failures(run, &[FailureKind::NoMemory]);
        let kills = kills(run);
        let rooms: Vec<Room> = [in_cgroup(run), on_host(run)].into_iter().flatten().collect();
        let ceiling = |room: &Room| room.each.and_then(|each| each.fit_into(room.bytes));
        let tightest = rooms.iter().min_by_key(|room| ceiling(room).unwrap_or(u64::MAX));
        let measured = tightest.and_then(|room| Some((room, room.each?)));
        let (status, summary) = if failed > 0 {
            (Status::Hit, format!("{} connections {}", units::count(failed), FailureKind::NoMemory.says()))
        } else if kills > 0 {
            (Status::Hit, "a worker of the generator was killed for want of memory".to_owned())
        } else if let Some((used, limit)) =
            fullest(run).filter(|(used, limit)| *used as f64 >= 0.9 * *limit as f64)
        {
            let (used, limit) = (in_bytes(used), in_bytes(limit));
            (Status::Near, format!("the generator's cgroup used up to {used} of {limit}"))
        } else if let Some((room, each)) = measured {
            let by_ceiling = ceiling(room).map(|c| evidence::status_by_ceiling(run, c));
            let summary = format!(
                "{} {}, {} for each connection",
                units::bytes(room.bytes),
                room.whose,
                units::bytes(each.value)
            );
            (by_ceiling.unwrap_or(Status::Clear), summary)
        } else if rooms.is_empty() {
            (Status::Unknown, "the generator's memory could not be read".to_owned())
        } else {
            (Status::Unknown, "what a connection takes of the generator is unknown until measured".to_owned())
        };
        let mut finding = FACTS.finding(status, summary);
        if let Some((room, each)) = measured {
            finding = each.ceiling(finding, run, room.bytes);
        }
        finding.evidence = read(run, kills);
        finding.remedy = remedy(run, measured.map(|(room, each)| (room.bytes, each.value)));
        finding
    }
}

/// Memory that the generator may still take.
struct Room {
    /// How much.
    bytes: f64,
    /// As the summary calls it.
    whose: &'static str,
    /// What a connection takes of it; `None`: not measured.
    each: Option<Each>,
}

/// Memory of the host. Where the target is here too, the kernel's for both ends cannot be told apart: rather
/// too low a ceiling than too high.
fn on_host(run: &RunResult) -> Option<Room> {
    let bytes = run.before.host.memory_available_bytes? as f64;
    Some(Room { bytes, whose: "available to the generator", each: sum(run) })
}

/// What the generator's cgroup has left, by the slope of its usage; where that was not read, by its parts.
fn in_cgroup(run: &RunResult) -> Option<Room> {
    let before = run.before.generator.as_ref()?.cgroup.as_ref()?;
    let bytes = before.memory_limit_bytes?.saturating_sub(before.memory_bytes?) as f64;
    let usage = |s: &model::result::Stage| Some(s.generator.as_ref()?.cgroup.as_ref()?.memory_bytes? as f64);
    let slope = cost::over(&cost::growing(run), usage).filter(|e| e.value >= 1.0);
    let each = slope.map(|slope| Each::sum(&[slope])).or_else(|| sum(run));
    Some(Room { bytes, whose: "left to the generator's cgroup", each })
}

/// User and kernel memory of one connection's end; `None`: one of them was not measured, or they are nothing.
fn sum(run: &RunResult) -> Option<Each> {
    let generator = &run.cost.generator;
    let kernel = generator.kernel_bytes_per_connection.or(run.cost.shared_kernel_bytes_per_connection)?;
    let parts: [Estimate; 2] = [generator.user_bytes_per_connection?, kernel];
    Some(Each::sum(&parts)).filter(|each| each.value >= 1.0)
}

/// Readings of the generator's cgroup after the first connection.
fn cgroups(run: &RunResult) -> impl Iterator<Item = &Cgroup> {
    let staged = run.stages.iter().map(|s| s.generator.as_ref());
    staged.chain([run.after.generator.as_ref()]).filter_map(|g| g?.cgroup.as_ref())
}

/// The most that its cgroup used, and the limit it had then.
fn fullest(run: &RunResult) -> Option<(u64, u64)> {
    cgroups(run).filter_map(|c| c.memory_bytes.zip(c.memory_limit_bytes)).max_by_key(|(used, _)| *used)
}

/// How often its cgroup had a process of ours killed: with the target in the same one, only where a worker
/// died.
pub(crate) fn kills(run: &RunResult) -> u64 {
    let path = |g: &Option<Group>| Some(g.as_ref()?.cgroup.as_ref()?.path.clone());
    let shared = path(&run.before.generator).is_some_and(|own| path(&run.before.target) == Some(own));
    if shared && run.workers.iter().all(|w| w.died.is_none()) {
        return 0;
    }
    let before = run.before.generator.as_ref().and_then(|g| g.cgroup.as_ref()).and_then(|c| c.oom_kills);
    evidence::rise(before, cgroups(run).map(|c| c.oom_kills)).unwrap_or(0)
}

fn in_bytes(n: u64) -> String {
    units::bytes(n as f64)
}

fn read(run: &RunResult, kills: u64) -> Vec<String> {
    let mut out = Vec::new();
    let written = |b: Option<u64>| b.map_or("unknown".to_owned(), in_bytes);
    out.push(format!(
        "MemAvailable {} before the run; the generator's own {} before, {} at most",
        written(run.before.host.memory_available_bytes),
        written(run.before.generator.as_ref().and_then(|g| g.user_bytes)),
        written(run.cost.generator.peak_user_bytes)
    ));
    let before = run.before.generator.as_ref().and_then(|g| g.cgroup.as_ref());
    if let Some((before, limit)) = before.and_then(|c| Some((c, c.memory_limit_bytes?))) {
        let last = fullest(run).map_or(limit, |(_, limit)| limit);
        let changed = if last == limit { String::new() } else { format!(", later {}", in_bytes(last)) };
        out.push(format!(
            "cgroup {}: limit {}{changed}, used before {}, at most {}",
            before.path,
            in_bytes(limit),
            written(before.memory_bytes),
            written(fullest(run).map(|(used, _)| used))
        ));
    }
    let cost = &run.cost;
    for (what, estimate) in [
        ("user memory", cost.generator.user_bytes_per_connection),
        ("kernel memory", cost.generator.kernel_bytes_per_connection),
        ("kernel memory of both ends", cost.shared_kernel_bytes_per_connection),
    ] {
        if let Some(e) = estimate {
            out.push(format!("{what}: {} per connection, over {} stages", units::bytes(e.value), e.stages));
        }
    }
    if kills > 0 {
        out.push(format!("out-of-memory kills in its cgroup rose by {kills}"));
    }
    out.extend(
        evidence::words(run, FailureKind::NoMemory).map(|words| format!("the kernel said: \"{words}\"")),
    );
    out
}

fn remedy(run: &RunResult, measured: Option<(f64, f64)>) -> Vec<String> {
    let asked = evidence::asked(run);
    let wanted = nice::lifted(asked);
    let mut out = Vec::new();
    // Where it broke, what was held is known to fit; else what the arithmetic allows, with a tenth to spare.
    let broke = evidence::failures(run, &[FailureKind::NoMemory]) > 0;
    let fits = measured.map(|(room, each)| (room * 0.9 / each) as u64);
    let fits = if broke { Some(evidence::peak(run)) } else { fits }.filter(|n| *n > 0 && *n < wanted);
    match fits {
        Some(fits) => {
            let machines = evidence::counted(wanted.div_ceil(fits), "machine", "machines");
            out.push(format!(
                "# hold fewer from here; {} take {machines} like this one:",
                units::count(wanted)
            ));
            out.push(format!("plimsoll hold {} -c {fits}", run.target.url));
        }
        None => {
            out.push("# see what one connection takes, with fewer:".to_owned());
            out.push(format!("plimsoll hold {} -c {}", run.target.url, (asked / 10).clamp(1, 10_000)));
        }
    }
    let cgroup = run.before.generator.as_ref().and_then(|g| g.cgroup.as_ref());
    if let Some((cgroup, limit)) = cgroup.and_then(|c| Some((c, c.memory_limit_bytes?))) {
        let used = cgroup.memory_bytes.unwrap_or(0);
        let needed = measured
            .map_or(limit.saturating_mul(2), |(_, each)| used.saturating_add((wanted as f64 * each) as u64));
        let megabytes = nice::up(needed.max(limit).div_ceil(1 << 20));
        out.push("# or lift the memory limit of the generator's cgroup:".to_owned());
        out.extend(crate::cgroup::memory(cgroup, megabytes));
    }
    out
}

#[cfg(test)]
mod tests {
    use model::FailureKind;
    use model::result::Status;

    use crate::testing::{self, finding};

    const ID: &str = "client.memory";

    #[test]
    fn the_host_bounds_it_by_its_own_end() {
        let found = finding(testing::run(), ID);
        assert_eq!(found.ceiling_connections, Some((20_u64 << 30) / (200 + 5_500)));
        assert_eq!(found.status, Status::Clear);
        let mut elsewhere = testing::run();
        testing::hide_target(&mut elsewhere);
        assert_eq!(finding(elsewhere, ID).ceiling_connections, Some((20_u64 << 30) / (200 + 5_500)));
    }

    #[test]
    fn its_cgroup_bounds_it_where_that_is_less() {
        let mut run = testing::run();
        testing::generator_memory_limit(&mut run, 64 << 20, |n| 4_000_000 + 2_000 * n);
        let found = finding(run.clone(), ID);
        assert_eq!(found.ceiling_connections, Some(((64 << 20) - 4_000_000) / 2_000));
        assert_eq!(found.status, Status::Clear);
        // 4 MB and 12,000 connections of 2,000 bytes take less than the limit has already.
        assert!(
            found.remedy.contains(&"echo 64M > /sys/fs/cgroup/load/memory.max".to_owned()),
            "{:?}",
            found.remedy
        );
        run.spec.connections = 100_000;
        let found = finding(run.clone(), ID);
        assert!(found.summary.starts_with("would stop at 31,554 of 100,000 asked: "), "{}", found.summary);
        assert!(found.remedy[0].contains("120,000 take 5 machines"), "{:?}", found.remedy);
        assert_eq!(found.remedy[1], "plimsoll hold tcp://127.0.0.1:7000 -c 28398");
        assert!(found.remedy.contains(&"echo 240M > /sys/fs/cgroup/load/memory.max".to_owned()));
        testing::generator_memory_limit(&mut run, 25_000_000, |n| 4_000_000 + 2_000 * n);
        assert!(finding(run, ID).summary.contains("used up to 22.9 MiB of 23.8 MiB"));
    }

    #[test]
    fn connections_without_memory_and_a_killed_worker_are_hit() {
        let mut run = testing::run();
        testing::fail_last(&mut run, FailureKind::NoMemory, 3);
        run.connections.failed_example.insert(FailureKind::NoMemory, "No buffer space available".into());
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert_eq!(found.remedy[1], "plimsoll hold tcp://127.0.0.1:7000 -c 9997");
        assert!(found.evidence.iter().any(|e| e.contains("No buffer space")), "{found:?}");
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
        assert!(!run.verdict.trusted);

        let mut killed = testing::run();
        testing::generator_memory_limit(&mut killed, 64 << 20, |n| 4_000_000 + 2_000 * n);
        killed.after.generator.as_mut().unwrap().cgroup.as_mut().unwrap().oom_kills = Some(1);
        assert_eq!(finding(killed.clone(), ID).status, Status::Hit);
        // It counts on the host as well, and is not the host's for that.
        let mut told = killed.clone();
        (told.before.host.oom_kills, told.after.host.oom_kills) = (Some(3), Some(4));
        told.workers[0].died = Some("signal 9".into());
        assert_ne!(finding(told.clone(), "host.memory").status, Status::Hit);
        told.after.host.oom_kills = Some(5);
        assert_eq!(finding(told, "host.memory").status, Status::Hit);
        // In one cgroup with the target, a kill is the target's unless a worker died.
        let cgroup = killed.before.generator.as_ref().unwrap().cgroup.clone();
        killed.before.target.as_mut().unwrap().cgroup = cgroup;
        assert_eq!(finding(killed.clone(), ID).status, Status::Clear);
        killed.workers[0].died = Some("signal 9".into());
        assert_eq!(finding(killed, ID).status, Status::Hit);
    }

    #[test]
    fn before_the_run_it_is_unknown() {
        let found = finding(testing::doctor(10_000), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Unknown, None));
    }
}

//! Which settings would have to be others for what is asked to fit?
//!
//! The same figures as the limits' remedies name, typed, and only those that are too low now. What cannot be read is
//! not guessed: it gives no setting.

use model::{RunResult, units};

use crate::{client_nofile, evidence, listen_accept_queue, nice, server_memory, server_nofile};

/// Where a setting is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A kernel setting of the host: `sysctl`.
    Kernel,
    /// The unit that starts the target: a line of its `[Service]`.
    Unit,
    /// The limits of a user who logs in: pam_limits.
    User,
}

/// One setting that is too low, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Where it is made.
    pub place: Place,
    /// Its name there: `net.core.somaxconn`, `LimitNOFILE`, `nofile`.
    pub name: &'static str,
    /// What it is now.
    pub now: String,
    /// What it should be.
    pub wanted: String,
    /// Why, in words.
    pub because: String,
}

/// All settings that are too low for what a run asks, the kernel's first. Of a doctor's run those that settings alone
/// show; of a finished one also those that its measured costs call for.
pub fn lifting(run: &RunResult) -> Vec<Setting> {
    let mut out = Vec::new();
    out.extend(port_range(run));
    out.extend(file_max(run));
    out.extend(nr_open(run));
    out.extend(conntrack(run));
    out.extend(queues(run));
    out.extend(target_nofile(run));
    out.extend(tasks(run));
    out.extend(memory(run));
    out.extend(user_nofile(run));
    out
}

/// `N connections`, as in "because".
fn connections(n: u64) -> String {
    evidence::counted(n, "connection", "connections")
}

fn kernel(name: &'static str, now: u64, wanted: u64, because: String) -> Option<Setting> {
    (now < wanted).then(|| Setting {
        place: Place::Kernel,
        name,
        now: now.to_string(),
        wanted: wanted.to_string(),
        because,
    })
}

/// A wider range where the sources that can be had do not suffice with this one.
fn port_range(run: &RunResult) -> Option<Setting> {
    let settings = &run.settings;
    let (low, high) = settings.host.port_range?;
    let each = Some(settings.connections_per_source).filter(|n| *n > 0)?;
    let sources = settings.sources_available.max(settings.sources.len() as u64).max(1);
    let fits = each.saturating_mul(sources) >= evidence::asked(run);
    let wide = high.saturating_sub(low) >= 60_000;
    (!fits && !wide).then(|| Setting {
        place: Place::Kernel,
        name: "net.ipv4.ip_local_port_range",
        now: format!("{low} {high}"),
        wanted: "1024 65535".to_owned(),
        because: format!(
            "{} from {} need more ports than {} each",
            connections(evidence::asked(run)),
            evidence::counted(sources, "source address", "source addresses"),
            units::count(each)
        ),
    })
}

/// A connection takes a descriptor at each of its ends that is on this host.
fn file_max(run: &RunResult) -> Option<Setting> {
    let ends = if run.settings.same_host { 2 } else { 1 };
    let used = run.before.host.files.unwrap_or(0);
    let needed = evidence::asked(run).saturating_mul(ends).saturating_add(used);
    let now = run.settings.host.file_max.filter(|now| *now < needed)?;
    let because = format!(
        "{} take {} each here",
        connections(evidence::asked(run)),
        evidence::counted(ends, "descriptor", "descriptors")
    );
    kernel("fs.file-max", now, nice::lifted(needed), because)
}

/// No process may be given more descriptors than this.
fn nr_open(run: &RunResult) -> Option<Setting> {
    let wanted = target_limit(run).into_iter().chain(worker_limit(run)).max()?;
    let because = format!("no process may have more descriptors than this, and {wanted} are needed");
    kernel("fs.nr_open", run.settings.host.nr_open?, wanted, because)
}

/// Where connections are tracked, each takes an entry; beyond the most, new ones are dropped without a word.
fn conntrack(run: &RunResult) -> Option<Setting> {
    // An empty table: nothing is tracked here, whatever its size.
    let used = run.before.host.conntrack.filter(|used| *used > 0)?;
    let needed = evidence::asked(run).saturating_add(used);
    let now = run.settings.host.conntrack_max.filter(|now| *now < needed)?;
    let because =
        format!("{} take an entry each, {} are taken", connections(evidence::asked(run)), units::count(used));
    kernel("net.netfilter.nf_conntrack_max", now, nice::lifted(needed), because)
}

/// What waits to be opened and to be accepted, where all come at once. Asked only where the target is on this host.
fn queues(run: &RunResult) -> Vec<Setting> {
    if run.settings.target.is_empty() || !run.settings.same_host {
        return Vec::new();
    }
    let host = &run.settings.host;
    let wanted = listen_accept_queue::wanted(run);
    let because = |what: &str| format!("{what}, and {} may come at once", connections(evidence::asked(run)));
    let accept = host.somaxconn.and_then(|now| {
        kernel("net.core.somaxconn", now, wanted, because("it caps every server's accept queue"))
    });
    let syn = host.tcp_max_syn_backlog.and_then(|now| {
        kernel("net.ipv4.tcp_max_syn_backlog", now, wanted, because("it caps the handshakes under way"))
    });
    accept.into_iter().chain(syn).collect()
}

/// The limit that the target's processes need, where one of theirs is too low.
fn target_limit(run: &RunResult) -> Option<u64> {
    let short = server_nofile::room(run)? < evidence::asked(run);
    short.then(|| server_nofile::wanted(run))
}

fn target_nofile(run: &RunResult) -> Option<Setting> {
    let wanted = target_limit(run)?;
    Some(Setting {
        place: Place::Unit,
        name: "LimitNOFILE",
        now: evidence::lowest_nofile(&run.settings.target)?.to_string(),
        wanted: wanted.to_string(),
        because: format!(
            "the target's descriptors are enough for {} of {}",
            units::count(server_nofile::room(run)?),
            connections(evidence::asked(run))
        ),
    })
}

/// Threads that grow with connections, against the most tasks of the target's cgroup.
fn tasks(run: &RunResult) -> Option<Setting> {
    let each = run.cost.target.threads_per_connection.map(|e| e.value).filter(|each| *each >= 0.01)?;
    let cgroup = run.before.target.as_ref()?.cgroup.as_ref()?;
    let now = cgroup.pids_limit?;
    let needed = |n: u64| cgroup.pids.unwrap_or(0).saturating_add((n as f64 * each).ceil() as u64);
    (now < needed(evidence::asked(run))).then(|| Setting {
        place: Place::Unit,
        name: "TasksMax",
        now: now.to_string(),
        wanted: nice::up(needed(nice::lifted(evidence::asked(run)))).to_string(),
        because: format!("{} take {each:.2} threads each", connections(evidence::asked(run))),
    })
}

/// What the connections need of the target's cgroup, where that has a limit and their cost was measured.
fn memory(run: &RunResult) -> Option<Setting> {
    let need = server_memory::need(run)?;
    (need.room < evidence::asked(run)).then(|| Setting {
        place: Place::Unit,
        name: "MemoryMax",
        now: need.limit_bytes.to_string(),
        wanted: format!("{}M", need.wanted_megabytes),
        because: format!(
            "the target's cgroup has memory for {} of {}",
            units::count(need.room),
            connections(evidence::asked(run))
        ),
    })
}

/// The limit that a worker needs, where their number is fixed and theirs is too low.
fn worker_limit(run: &RunResult) -> Option<u64> {
    let workers = u64::from(run.spec.workers?).max(1);
    let each = client_nofile::per_worker(run)?;
    (each.saturating_mul(workers) < evidence::asked(run)).then(|| client_nofile::wanted(run))
}

/// The descriptors of whoever starts the target or the generator from a login.
fn user_nofile(run: &RunResult) -> Option<Setting> {
    let server = target_limit(run).zip(evidence::lowest_nofile(&run.settings.target));
    let worker = worker_limit(run).zip(run.settings.worker.nofile_hard);
    let (wanted, now) = server.into_iter().chain(worker).max()?;
    let who =
        if server.is_some_and(|server| server == (wanted, now)) { "the target" } else { "the generator" };
    Some(Setting {
        place: Place::User,
        name: "nofile",
        now: now.to_string(),
        wanted: wanted.to_string(),
        because: format!("{who} needs them for {}", connections(evidence::asked(run))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn settings(run: &RunResult) -> Vec<(Place, &'static str, String, String)> {
        lifting(run).into_iter().map(|s| (s.place, s.name, s.now, s.wanted)).collect()
    }

    fn one(run: &RunResult, name: &str) -> Option<(String, String)> {
        lifting(run).into_iter().find(|s| s.name == name).map(|s| (s.now, s.wanted))
    }

    fn pair(now: &str, wanted: &str) -> Option<(String, String)> {
        Some((now.to_owned(), wanted.to_owned()))
    }

    #[test]
    fn nothing_is_lifted_that_is_high_enough() {
        let mut run = testing::doctor(4_000);
        run.settings.host.somaxconn = Some(65_535);
        run.settings.host.tcp_max_syn_backlog = Some(65_536);
        assert_eq!(settings(&run), []);
        assert_eq!(lifting(&testing::doctor(1)), []);
    }

    #[test]
    fn a_setting_has_the_value_that_the_remedy_names() {
        for asked in [30_000, 50_000, 2_000_000] {
            let run = testing::doctor(asked);
            let remedies: Vec<String> = crate::doctor(&run).into_iter().flat_map(|f| f.remedy).collect();
            let said =
                |line: String| assert!(remedies.contains(&line), "{line} is in no remedy: {remedies:?}");
            let (now, wanted) = one(&run, "LimitNOFILE").unwrap();
            assert_eq!(now, "20000");
            said(format!("LimitNOFILE={wanted}"));
            assert_eq!(one(&run, "nofile"), pair("20000", &wanted));
            said(format!("sysctl -w net.core.somaxconn={}", one(&run, "net.core.somaxconn").unwrap().1));
            match one(&run, "fs.nr_open") {
                Some((_, most)) => said(format!("sysctl -w fs.nr_open={most}")),
                None => assert!(asked < 1_000_000),
            }
        }
    }

    #[test]
    fn only_what_the_host_lacks() {
        let mut run = testing::doctor(2_000_000);
        assert_eq!(one(&run, "fs.file-max"), pair("2466177", "4900000"));
        run.before.host.conntrack = None;
        assert_eq!(one(&run, "net.netfilter.nf_conntrack_max"), None, "unknown");
        run.settings.host.conntrack_max = Some(262_144);
        run.before.host.conntrack = Some(10);
        assert_eq!(one(&run, "net.netfilter.nf_conntrack_max"), pair("262144", "2500000"));
        run.before.host.conntrack = Some(0);
        assert_eq!(one(&run, "net.netfilter.nf_conntrack_max"), None, "nothing is tracked here");
        assert_eq!(one(&run, "net.ipv4.ip_local_port_range"), None, "loopback has sources enough");
        run.settings.sources_available = 1;
        run.settings.sources = vec!["192.0.2.7".into()];
        assert_eq!(one(&run, "net.ipv4.ip_local_port_range"), pair("32768 60999", "1024 65535"));
        run.settings.host.port_range = Some((1_024, 65_535));
        assert_eq!(one(&run, "net.ipv4.ip_local_port_range"), None);
    }

    #[test]
    fn what_cannot_be_seen_is_not_guessed() {
        let mut run = testing::doctor(2_000_000);
        testing::hide_target(&mut run);
        run.settings.host = Default::default();
        assert_eq!(settings(&run), []);
    }

    #[test]
    fn a_fixed_number_of_workers_needs_what_their_limits_lack() {
        let mut run = testing::doctor(50_000);
        testing::hide_target(&mut run);
        assert_eq!(one(&run, "nofile"), None, "as many workers as needed are started");
        run.spec.workers = Some(1);
        let (now, wanted) = one(&run, "nofile").unwrap();
        assert_eq!(now, "20000");
        let remedy = crate::doctor(&run).into_iter().find(|f| f.id == "client.nofile").unwrap().remedy;
        assert!(remedy.contains(&format!("* hard nofile {wanted}")), "{remedy:?}");
        assert!(lifting(&run).iter().any(|s| s.because.starts_with("the generator needs")));
    }

    #[test]
    fn measured_costs_call_for_more_of_the_unit() {
        let mut run = testing::run();
        testing::memory_limit(&mut run, 64 << 20, |n| 20_000_000 + n * 4_000);
        for reading in [&mut run.before.target, &mut run.after.target] {
            let cgroup = reading.as_mut().unwrap().cgroup.as_mut().unwrap();
            (cgroup.pids, cgroup.pids_limit) = (Some(3), Some(512));
        }
        analysis::conclude(&mut run);
        run.spec.connections = 100_000;
        run.cost.target.threads_per_connection =
            Some(model::Estimate { value: 1.0, ..run.cost.target.user_bytes_per_connection.unwrap() });
        assert_eq!(one(&run, "TasksMax"), pair("512", "130000"));
        let (now, wanted) = one(&run, "MemoryMax").unwrap();
        assert_eq!(now, (64 << 20).to_string());
        crate::judge(&mut run);
        let remedy = &run.limits.iter().find(|f| f.id == "server.memory").unwrap().remedy;
        assert!(remedy.contains(&format!("MemoryMax={wanted}")), "{wanted}: {remedy:?}");
    }
}

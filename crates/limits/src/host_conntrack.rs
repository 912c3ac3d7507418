//! Is the connection-tracking table full?

use analysis::cost;
use model::result::{Finding, Side, Status};
use model::{Estimate, FailureKind, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, nice, sysctl};

/// The table in which the kernel's packet filter remembers connections, of the host that is observed.
pub(crate) struct HostConntrack;

static FACTS: LimitFacts = LimitFacts {
    id: "host.conntrack",
    side: Side::Host,
    question: "Is the connection-tracking table full?",
    doc: "Where a firewall or address translation tracks connections, each takes an entry of one table. \
          When it is full, SYNs are dropped without a word: new connections time out, those that stand go \
          on. It shows as a line near 65,536, 131,072 or 262,144, which are common maxima.",
    how_to_see: "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max; dmesg | grep 'table \
        full'",
    remedy_doc: "A larger table with more hash buckets, or no tracking for the server's port.",
};

/// From this share of the maximum on the table counts as full: entries come and go between two looks.
const FULL: f64 = 0.99;

/// A slope of entries below this means that these connections are not tracked.
const LEAST_SLOPE: f64 = 0.5;

/// What a connection takes before it is measured.
const ONE_ENTRY: Estimate = Estimate { value: 1.0, low: Some(1.0), high: Some(1.0), stages: 0 };

impl Limit for HostConntrack {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let each = each(run);
        let mut finding = match (run.settings.host.conntrack_max, run.before.host.conntrack) {
            (None, _) => FACTS.finding(Status::Clear, "no connection is tracked: the kernel has no table"),
            (Some(_), None) => {
                FACTS.finding(Status::Unknown, "how full the connection-tracking table is could not be read")
            }
            (Some(max), Some(before)) => judged(run, max, before, each),
        };
        finding = evidence::of_this_host(finding, run);
        finding.evidence = read(run, each);
        finding.remedy = remedy(run, each);
        finding
    }
}

fn judged(run: &RunResult, max: u64, before: u64, each: Entries) -> Finding {
    if let Some(met) = met(run, max) {
        let (entries, max_said) = (units::count(met.entries), units::count(max));
        let summary = format!("the connection-tracking table had {entries} of {max_said} entries");
        let finding = FACTS.finding(Status::Hit, summary);
        return match each {
            Entries::Measured(each) | Entries::Taken(each) => {
                each.ceiling(finding, run, max.saturating_sub(before) as f64)
            }
            Entries::Untracked | Entries::Unknown => finding,
        };
    }
    let room = max.saturating_sub(before) as f64;
    let most = evidence::highest(run, |host| host.conntrack).map_or(before, |(_, n)| n);
    let full = most as f64 >= 0.9 * max as f64;
    let by_ceiling = |each: Each| {
        let ceiling = each.fit_into(room).map(|c| evidence::status_by_ceiling(run, c));
        if full { Status::Near } else { ceiling.unwrap_or(Status::Clear) }
    };
    let used = format!("{} of {} entries were used", units::count(most), units::count(max));
    match each {
        Entries::Measured(each) | Entries::Taken(each) => {
            each.ceiling(FACTS.finding(by_ceiling(each), used), run, room)
        }
        Entries::Untracked if full => FACTS.finding(Status::Near, used),
        Entries::Untracked => {
            FACTS.finding(Status::Clear, "the table did not grow with the connections: they are not tracked")
        }
        Entries::Unknown => FACTS.finding(
            Status::Unknown,
            format!(
                "the table of {} entries is empty; whether connections are tracked shows once some are held",
                units::count(max)
            ),
        ),
    }
}

/// What one connection takes of the table.
#[derive(Debug, Clone, Copy)]
enum Entries {
    /// Fitted over stages.
    Measured(Each),
    /// Not measured: one.
    Taken(Each),
    /// None: no rule tracks these connections.
    Untracked,
    /// An empty table tells nothing.
    Unknown,
}

fn each(run: &RunResult) -> Entries {
    match cost::over(&cost::growing(run), |s| s.host.conntrack.map(|n| n as f64)) {
        Some(slope) if slope.value >= LEAST_SLOPE => {
            Entries::Measured(Each::sum(&[slope]).at_least(ONE_ENTRY.value))
        }
        Some(_) => Entries::Untracked,
        None if run.before.host.conntrack.unwrap_or(0) == 0 => Entries::Unknown,
        None => Entries::Taken(Each::sum(&[ONE_ENTRY])),
    }
}

/// The table stood at its maximum while new connections were dropped.
struct Met {
    /// Where it was read.
    at: String,
    /// Entries in it.
    entries: u64,
}

fn met(run: &RunResult, max: u64) -> Option<Met> {
    const DROPPED: [FailureKind; 1] = [FailureKind::ConnectTimeout];
    let harmed = run
        .stages
        .iter()
        .map(|s| evidence::stage_failures(s, &DROPPED) > 0 || evidence::syn_was_retried(s.ready_latency));
    let harmed = harmed.chain([evidence::failures(run, &DROPPED) > 0]);
    evidence::host_readings(run).zip(harmed).find_map(|((at, host), harmed)| {
        let entries = host.conntrack.filter(|n| *n as f64 >= FULL * max as f64)?;
        harmed.then_some(Met { at, entries })
    })
}

fn read(run: &RunResult, each: Entries) -> Vec<String> {
    let Some(max) = run.settings.host.conntrack_max else {
        return vec!["there is no /proc/sys/net/netfilter/nf_conntrack_max".to_owned()];
    };
    let mut out = vec![format!(
        "nf_conntrack_max {}; nf_conntrack_count {} before the run",
        units::count(max),
        evidence::number(run.before.host.conntrack)
    )];
    if let Some((at, most)) = evidence::highest(run, |host| host.conntrack) {
        out.push(format!("at most {} entries, at {at}", units::count(most)));
    }
    match each {
        Entries::Measured(each) => out.push(format!("{:.2} entries per connection", each.value)),
        Entries::Taken(_) => out.push("not measured: 1 entry per connection is taken".to_owned()),
        Entries::Untracked | Entries::Unknown => {}
    }
    if let Some(met) = met(run, max) {
        let failed = evidence::failures(run, &[FailureKind::ConnectTimeout]);
        let slow = run.stages.iter().filter_map(|s| s.ready_latency).map(|l| l.p99_ms).reduce(f64::max);
        let slow = slow
            .map_or(String::new(), |ms| format!("; becoming ready took {} (p99)", units::milliseconds(ms)));
        out.push(format!(
            "full at {}; {} connections {}{slow}",
            met.at,
            units::count(failed),
            FailureKind::ConnectTimeout.says()
        ));
    }
    out
}

fn remedy(run: &RunResult, each: Entries) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let entries = match each {
        Entries::Measured(each) | Entries::Taken(each) => each.value,
        Entries::Untracked | Entries::Unknown => ONE_ENTRY.value,
    };
    let needed = (wanted as f64 * entries) as u64 + run.before.host.conntrack.unwrap_or(0);
    let max = nice::raised(needed, run.settings.host.conntrack_max.unwrap_or(0));
    let mut out = vec![format!("# room for {} connections, where they are tracked:", units::count(wanted))];
    out.extend(sysctl::set("net.netfilter.nf_conntrack_max", max));
    out.push("# a bucket for every four entries, so that finding one stays quick:".to_owned());
    out.push(format!("echo {} > /sys/module/nf_conntrack/parameters/hashsize", max.div_ceil(4)));
    let port = run.spec.target.port;
    out.push(
        "# or do not track them, on the server's host (on the clients', dport and sport change places):"
            .to_owned(),
    );
    for (chain, end) in [("PREROUTING", "dport"), ("OUTPUT", "sport")] {
        out.push(format!("# iptables -t raw -A {chain} -p tcp --{end} {port} -j NOTRACK"));
    }
    out
}

#[cfg(test)]
mod tests {
    use model::FailureKind;
    use model::result::{Side, Status};

    use crate::testing::{self, finding};

    const ID: &str = "host.conntrack";

    #[test]
    fn the_ceiling_is_the_maximum_by_entries_per_connection() {
        let found = finding(testing::run(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(262_144 - 50)));
        let mut both = testing::run();
        both.settings.host.conntrack_max = Some(65_536);
        for stage in &mut both.stages {
            stage.host.conntrack = Some(50 + 2 * stage.ready);
        }
        let found = finding(both, ID);
        assert_eq!(found.ceiling_connections, Some((65_536 - 50) / 2));
        assert!(found.evidence.contains(&"2.00 entries per connection".to_owned()), "{found:?}");
    }

    #[test]
    fn a_full_table_is_hit_only_where_connections_were_dropped() {
        let mut run = testing::run();
        run.settings.host.conntrack_max = Some(10_060);
        let near = finding(run.clone(), ID);
        assert_eq!(near.status, Status::Near);
        for line in [
            "sysctl -w net.netfilter.nf_conntrack_max=13000",
            "echo 3250 > /sys/module/nf_conntrack/parameters/hashsize",
            "# iptables -t raw -A PREROUTING -p tcp --dport 7000 -j NOTRACK",
        ] {
            assert!(near.remedy.contains(&line.to_owned()), "{:?}", near.remedy);
        }
        let mut other = run.clone();
        testing::fail_last(&mut other, FailureKind::Reset, 40);
        assert_eq!(finding(other, ID).status, Status::Near);
        let mut slow = run.clone();
        slow.stages[9].ready_latency = Some(testing::latency(1_030.0));
        assert_eq!(finding(slow, ID).status, Status::Hit);
        testing::fail_last(&mut run, FailureKind::ConnectTimeout, 40);
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn connections_that_are_not_tracked_have_no_ceiling_here() {
        let mut run = testing::run();
        run.stages.iter_mut().for_each(|s| s.host.conntrack = Some(50));
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, None));
        run.settings.host.conntrack_max = None;
        assert_eq!(finding(run, ID).status, Status::Clear);
    }

    #[test]
    fn an_empty_table_tells_the_doctor_nothing() {
        let mut run = testing::doctor(1_000_000);
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(262_144 - 50)));
        run.before.host.conntrack = Some(0);
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Unknown, None));
        testing::hide_target(&mut run);
        assert_eq!(finding(run, ID).side, Side::Client);
    }
}

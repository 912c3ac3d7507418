//! Does TCP run out of memory for its buffers?

use analysis::cost;
use model::result::{Finding, Side, Status};
use model::{Estimate, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, nice, sysctl};

/// What all TCP buffers may take together, on the host that is observed.
pub(crate) struct HostTcpMemory;

static FACTS: LimitFacts = LimitFacts {
    id: "host.tcp-memory",
    side: Side::Host,
    question: "Does TCP run out of memory for its buffers?",
    doc: "tcp_mem bounds what lies unread and unsent in the buffers of all TCP sockets together. Above its \
          second mark the kernel lets no buffer grow (it stalls), above its third it aborts connections. \
          Idle connections have empty buffers; those of slow readers are full.",
    how_to_see: "sysctl net.ipv4.tcp_mem; cat /proc/net/sockstat; nstat -az TcpExtTCPMemoryPressures \
        TcpExtTCPAbortOnMemory",
    remedy_doc: "Higher marks in net.ipv4.tcp_mem, or peers that read what they are sent.",
};

/// The unit of `tcp_mem` on the kernels that servers run; arm64 can be built with larger pages.
const PAGE_BYTES: u64 = 4_096;

impl Limit for HostTcpMemory {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let aborts = evidence::counted_rise(run, |tcp| tcp.aborts_on_memory);
        let pressures = evidence::counted_rise(run, |tcp| tcp.memory_pressures);
        let most = evidence::highest(run, |host| host.socket_buffer_bytes);
        let marks = marks(run);
        let each = each(run);
        let near_mark = |bytes: u64| marks.is_some_and(|m| bytes as f64 >= 0.9 * m.pressure as f64);
        let seen = aborts.is_some() || pressures.is_some();
        let mut finding = if let Some(aborts) = aborts.filter(|n| *n > 0) {
            FACTS.finding(
                Status::Hit,
                format!("the kernel aborted {} for want of TCP memory", connections(aborts)),
            )
        } else if let Some(entered) = pressures.filter(|n| *n > 0) {
            let times = evidence::times(entered);
            FACTS.finding(Status::Near, format!("TCP came under memory pressure {times}"))
        } else if evidence::not_begun(run) {
            FACTS.finding(Status::Unknown, "unknown until measured: what lies in buffers shows under load")
        } else {
            match (marks, &most) {
                (Some(marks), Some((_, most))) => {
                    let (most_said, mark) = (in_bytes(*most), in_bytes(marks.pressure));
                    let by_ceiling = each.and_then(|each| each.fit_into(room(run, marks)?));
                    let status = by_ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c));
                    let status = if near_mark(*most) { Status::Near } else { status };
                    FACTS.finding(
                        status,
                        format!("at most {most_said} lay in TCP buffers; pressure begins at {mark}"),
                    )
                }
                _ if seen => FACTS.finding(Status::Clear, "TCP never came under memory pressure"),
                _ => FACTS.finding(Status::Unknown, "TCP's memory and its counters could not be read"),
            }
        };
        if let (Some(each), Some(room)) = (each, marks.and_then(|marks| room(run, marks))) {
            finding = each.ceiling(finding, run, room);
        }
        finding = evidence::of_this_host(finding, run);
        finding.evidence = read(run, marks, most, each);
        finding.remedy = remedy(run, marks, each);
        finding
    }
}

/// The second and the third mark of `tcp_mem`, in bytes.
#[derive(Debug, Clone, Copy)]
struct Marks {
    /// Buffers no longer grow.
    pressure: u64,
    /// Connections are aborted.
    high: u64,
}

fn marks(run: &RunResult) -> Option<Marks> {
    let [_, pressure, high] = run.settings.host.tcp_mem_pages?;
    let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES);
    Some(Marks { pressure: bytes(pressure), high: bytes(high) })
}

/// What was left below the third mark before the run.
fn room(run: &RunResult, marks: Marks) -> Option<f64> {
    Some(marks.high.saturating_sub(run.before.host.socket_buffer_bytes?) as f64)
}

/// What one more connection has in its buffers: only a slope that is surely above zero counts, for what lies
/// in buffers at one moment is mostly chance.
fn each(run: &RunResult) -> Option<Each> {
    let slope: Estimate =
        cost::over(&cost::growing(run), |s| s.host.socket_buffer_bytes.map(|bytes| bytes as f64))?;
    slope.low.is_some_and(|low| low > 0.0).then(|| Each::sum(&[slope]))
}

fn in_bytes(n: u64) -> String {
    units::bytes(n as f64)
}

fn connections(n: u64) -> String {
    evidence::counted(n, "connection", "connections")
}

fn read(
    run: &RunResult,
    marks: Option<Marks>,
    most: Option<(String, u64)>,
    each: Option<Each>,
) -> Vec<String> {
    let mut out = Vec::new();
    if let (Some([low, pressure, high]), Some(marks)) = (run.settings.host.tcp_mem_pages, marks) {
        out.push(format!(
            "net.ipv4.tcp_mem {low} {pressure} {high} pages: pressure from {}, aborts from {}",
            in_bytes(marks.pressure),
            in_bytes(marks.high)
        ));
    }
    if let Some((at, most)) = most {
        let before = run.before.host.socket_buffer_bytes.map_or("unknown".to_owned(), in_bytes);
        out.push(format!("/proc/net/sockstat: {before} in buffers before, {} at {at}", in_bytes(most)));
    }
    let (before, after) = (&run.before.tcp, &run.after.tcp);
    for (name, before, after) in [
        ("TCPMemoryPressures", before.memory_pressures, after.memory_pressures),
        ("TCPAbortOnMemory", before.aborts_on_memory, after.aborts_on_memory),
    ] {
        if before.is_some() {
            let (before, after) = (evidence::number(before), evidence::number(after));
            out.push(format!("TcpExt {name} {before} before, {after} after"));
        }
    }
    if let Some(each) = each {
        out.push(format!("{} in buffers for each connection", units::bytes(each.value)));
    }
    out
}

/// The kernel's own proportions, 3 to 4 to 6, with room for twice as much as now, or for what was asked.
fn remedy(run: &RunResult, marks: Option<Marks>, each: Option<Each>) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let asked = each.map_or(0, |each| (wanted as f64 * each.value) as u64);
    // Where nothing is known, what the kernel takes at its start: about a tenth of the memory.
    let now = marks.map_or(run.host.memory_bytes / 10, |marks| marks.high);
    let high = nice::up(now.saturating_mul(2).max(asked).div_ceil(PAGE_BYTES)).max(6);
    let bytes = high.saturating_mul(PAGE_BYTES);
    let mut out = vec![format!("# up to {} may then lie in TCP buffers", in_bytes(bytes))];
    if run.host.memory_bytes > 0 && bytes > run.host.memory_bytes / 2 {
        out.push(format!(
            "# that is much of this host's {}: add memory first",
            in_bytes(run.host.memory_bytes)
        ));
    }
    out.extend(sysctl::set("net.ipv4.tcp_mem", format!("{} {} {high}", high / 2, high / 3 * 2)));
    out.push("# find the sockets whose peers do not read (Recv-Q and Send-Q):".to_owned());
    out.push("ss -tn | sort -k2,3 -n -r | head -n 15".to_owned());
    out
}

#[cfg(test)]
mod tests {
    use model::result::{Side, Status};

    use crate::testing::{self, finding};

    const ID: &str = "host.tcp-memory";

    #[test]
    fn the_ceiling_is_the_third_mark_by_bytes_in_buffers() {
        let found = finding(testing::run(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(575_802 * 4_096 / 500)));
        let wanted = "sysctl -w net.ipv4.tcp_mem=\"600000 800000 1200000\"";
        assert!(found.remedy.contains(&wanted.to_owned()), "{:?}", found.remedy);
    }

    #[test]
    fn empty_buffers_and_few_stages_promise_nothing() {
        let mut idle = testing::run();
        let pages = [0, 9, 3, 7, 1, 8, 2, 9, 4, 6];
        for (stage, pages) in idle.stages.iter_mut().zip(pages) {
            stage.host.socket_buffer_bytes = Some(pages * 4_096);
        }
        let found = finding(idle, ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, None));
        assert_eq!(finding(testing::sized(10_000, 4), ID).ceiling_connections, None);
    }

    #[test]
    fn pressure_is_near_and_an_abort_is_hit() {
        let mut run = testing::run();
        run.stages[8].tcp.memory_pressures = Some(3);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Near);
        assert!(found.summary.contains("under memory pressure once"), "{}", found.summary);
        run.stages[9].tcp.aborts_on_memory = Some(9);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.summary.contains("aborted 4 connections"), "{}", found.summary);
        testing::hide_target(&mut run);
        assert_eq!(finding(run, ID).side, Side::Client);
    }

    #[test]
    fn it_is_named_before_the_generators_want_of_memory() {
        let mut run = testing::run();
        testing::fail_last(&mut run, model::FailureKind::NoMemory, 3);
        run.stages[9].tcp.aborts_on_memory = Some(9);
        assert_eq!(testing::concluded(run).verdict.first_limit.as_deref(), Some(ID));
    }

    #[test]
    fn buffers_close_to_the_mark_are_near() {
        let mut run = testing::run();
        run.stages[4].host.socket_buffer_bytes = Some(383_868 * 4_096 / 10 * 9 + 4_096);
        let found = finding(run, ID);
        assert_eq!(found.status, Status::Near);
        assert!(found.evidence.iter().any(|e| e.ends_with("1.32 GiB at stage 5")), "{:?}", found.evidence);
    }

    #[test]
    fn before_the_run_nothing_is_known_of_it() {
        assert_eq!(finding(testing::doctor(10_000), ID).status, Status::Unknown);
    }
}

//! Does the accept queue overflow?

use model::observation::Listener;
use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, nice, server_nofile, storm};

/// Connections that the kernel has opened and the server has not accepted yet.
///
/// `Hit` says that it was met in this run. Whether it is also what broke is [`explains`]'s question: a queue
/// also overflows because a server out of descriptors has stopped to accept, and most overflows heal after a
/// second, when the SYN is sent again.
pub(crate) struct ListenAcceptQueue;

/// Its name: the verdict treats it apart.
pub(crate) const ID: &str = "listen.accept-queue";

static FACTS: LimitFacts = LimitFacts {
    id: ID,
    side: Side::Host,
    question: "Does the accept queue overflow?",
    doc: "The kernel keeps opened connections in a queue until the server accepts them: as many as the \
          server's backlog, 128 in many, and never more than somaxconn. When it is full, connections are \
          dropped and come back after 1, 3, 7 seconds, or are reset with tcp_abort_on_overflow. It limits \
          how many connect at once, not how many are held.",
    how_to_see: "nstat -az TcpExtListenOverflows TcpExtListenDrops; ss -ltn (Recv-Q against Send-Q)",
    remedy_doc: "A larger backlog in the server, a larger net.core.somaxconn, a slower ramp.",
};

/// How a connection fails whose handshake was dropped or reset on a full queue.
const SYMPTOMS: [FailureKind; 6] = [
    FailureKind::ConnectTimeout,
    FailureKind::ReadyTimeout,
    FailureKind::Refused,
    FailureKind::ClosedEarly,
    FailureKind::Reset,
    FailureKind::Silent,
];

impl Limit for ListenAcceptQueue {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let rise = overflows(run);
        let full = fullest(run);
        let backlog = backlog(run);
        let backlog_said = backlog.map_or(String::new(), |n| format!(" (it holds {})", units::count(n)));
        let (status, summary) = if let Some(rise) = rise.filter(|n| *n > 0) {
            let harm = if server_nofile::met(run).is_some() {
                ", behind a server that was out of descriptors"
            } else if explains(run) {
                ""
            } else {
                ", and all were served in the end or failed for another reason"
            };
            (
                Status::Hit,
                format!("the accept queue{backlog_said} overflowed {}{harm}", evidence::times(rise)),
            )
        } else if full.is_some_and(|(_, l)| l.queued >= l.backlog && l.backlog > 0) {
            (Status::Hit, format!("the accept queue stood at its maximum{backlog_said}"))
        } else if !run.settings.same_host && rise.is_none() && full.is_none() {
            (
                Status::Unknown,
                "the counters of the target's host cannot be read from here; run `plimsoll observe` there, and name it with --observer".to_owned(),
            )
        } else if rise.is_none() && full.is_none() && !evidence::not_begun(run) {
            (Status::Unknown, "the counters of the listening sockets could not be read".to_owned())
        } else if evidence::not_begun(run) {
            match backlog {
                Some(n) => (
                    Status::Clear,
                    format!("up to {} may connect before the server accepts one", units::count(n)),
                ),
                None => (Status::Unknown, "the target's listening socket cannot be seen".to_owned()),
            }
        } else if full.is_some_and(|(_, l)| l.backlog > 0 && l.queued * 10 >= l.backlog * 9) {
            (Status::Near, format!("the accept queue was nearly full{backlog_said}"))
        } else {
            (Status::Clear, format!("the accept queue{backlog_said} never overflowed"))
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, rise, full, backlog);
        finding.remedy = remedy(run);
        finding
    }
}

/// By how much `ListenOverflows` rose during the run; `None`: not readable, or counted on another host.
fn overflows(run: &RunResult) -> Option<u64> {
    evidence::counted_rise(run, |tcp| tcp.listen_overflows).filter(|_| run.settings.same_host)
}

/// Whether the overflow is what broke something: in a stage with overflows connections failed as dropped
/// ones do, or becoming ready took at least the second after which a SYN is sent again.
pub(crate) fn explains(run: &RunResult) -> bool {
    if overflows(run).unwrap_or(0) == 0 {
        return false;
    }
    if let Some(seen) = &run.storm {
        return storm::explained_by_the_queue(seen);
    }
    let harmed = |stage: &Stage| {
        evidence::stage_failures(stage, &SYMPTOMS) > 0 || evidence::syn_was_retried(stage.ready_latency)
    };
    evidence::stages_with_a_rise(run, |tcp| tcp.listen_overflows).any(harmed)
        || evidence::syn_was_retried(evidence::tcp_latency(run))
}

/// The listener as it was seen with the most connections waiting, and in which stage (0: at the end).
fn fullest(run: &RunResult) -> Option<(usize, &Listener)> {
    let staged = run.stages.iter().enumerate().filter_map(|(i, s)| Some((i + 1, s.listener.as_ref()?)));
    staged.chain(run.after.listener.as_ref().map(|l| (0, l))).max_by_key(|(_, l)| l.queued)
}

/// What one accept queue of the target holds; `None`: it cannot be seen.
pub(crate) fn backlog(run: &RunResult) -> Option<u64> {
    let seen = fullest(run).map(|(_, l)| l).or(run.before.listener.as_ref());
    seen.map(|l| l.backlog).filter(|n| *n > 0)
}

fn read(
    run: &RunResult,
    rise: Option<u64>,
    full: Option<(usize, &Listener)>,
    backlog: Option<u64>,
) -> Vec<String> {
    let mut out = Vec::new();
    if rise.is_some() {
        let (before, after) = (&run.before.tcp, &run.after.tcp);
        out.push(format!(
            "TcpExt ListenOverflows {} before, {} after",
            evidence::number(before.listen_overflows),
            evidence::number(after.listen_overflows)
        ));
        out.push(format!(
            "TcpExt ListenDrops {} before, {} after",
            evidence::number(before.listen_drops),
            evidence::number(after.listen_drops)
        ));
    }
    if let Some((at, listener)) = full {
        let at = if at == 0 { "the end".to_owned() } else { format!("stage {at}") };
        out.push(format!("{} connections waited to be accepted at {at}", units::count(listener.queued)));
    }
    if let Some(seen) = run.series.iter().filter_map(|m| m.accept_queue).max().filter(|n| *n > 0) {
        out.push(format!("up to {} waited at any moment", units::count(seen)));
    }
    if let Some(seen) = &run.storm {
        out.extend(storm::queue_evidence(seen));
    }
    match (backlog, run.settings.host.somaxconn) {
        (Some(backlog), Some(most)) => {
            out.push(format!("one queue holds {backlog}; net.core.somaxconn {most}"));
        }
        (Some(backlog), None) => out.push(format!("one queue holds {backlog}")),
        (None, Some(most)) => out.push(format!("net.core.somaxconn {most}")),
        (None, None) => {}
    }
    if let Some(latency) = evidence::tcp_latency(run).filter(|l| evidence::syn_was_retried(Some(*l))) {
        out.push(format!(
            "opening took {} at the 99th percentile: SYNs were sent again",
            units::milliseconds(latency.p99_ms)
        ));
    }
    out
}

/// How many connections one queue should hold, for what is asked.
pub(crate) fn wanted(run: &RunResult) -> u64 {
    /// What `listen(2)` may be given: the kernel keeps it in 16 bits on old versions.
    const MOST: u64 = 65_535;
    nice::lifted(storm::burst(run).unwrap_or(evidence::asked(run)))
        .clamp(1_024, MOST)
        .max(backlog(run).unwrap_or(0).min(MOST))
}

/// Lines that lengthen the queue, or let connections come more slowly.
pub(crate) fn remedy(run: &RunResult) -> Vec<String> {
    let queue = wanted(run);
    let burst = storm::burst(run);
    let mut out = vec![match evidence::target_name(run) {
        Some("nginx") => format!("listen 80 backlog={queue}; # nginx.conf, in its listen line"),
        Some("redis-server" | "valkey-server") => format!("tcp-backlog {queue} # redis.conf, then restart"),
        Some("plimsoll") => format!("plimsoll serve {} --backlog {queue}", run.target.url),
        Some("haproxy") => format!("backlog {queue} # haproxy.cfg, in the frontend"),
        _ => format!("# in the server, then restart it: listen(fd, {queue}); often a setting called backlog"),
    }];
    if run.settings.host.somaxconn.is_none_or(|most| most < queue) {
        // The kernel caps what a server asks for; whichever of the two binds comes first.
        let capped = backlog(run).zip(run.settings.host.somaxconn).is_none_or(|(queue, most)| queue >= most);
        out.insert(usize::from(!capped), format!("sysctl -w net.core.somaxconn={queue}"));
    }
    if burst.is_some() {
        out.push("# or let them come more slowly, with a longer back-off in the clients:".to_owned());
        let seconds = storm::unhurried_seconds(run).unwrap_or(10);
        let asked = evidence::asked(run);
        out.push(format!("plimsoll storm {} -c {asked} --spread {seconds}s", run.target.url));
        return out;
    }
    let rate =
        if run.establish.rate_per_second >= 2.0 { run.establish.rate_per_second / 2.0 } else { 1_000.0 };
    out.push("# or let them come more slowly:".to_owned());
    out.push(format!(
        "plimsoll hold {} -c {} --rate {}",
        run.target.url,
        evidence::asked(run),
        nice::about(rate as u64)
    ));
    out
}

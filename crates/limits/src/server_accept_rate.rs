//! Does the server accept too slowly?

use model::result::{Finding, Moment, Side, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, listen_accept_queue, nice, server_nofile};

/// One thread that accepts, and can no faster.
pub(crate) struct ServerAcceptRate;

static FACTS: LimitFacts = LimitFacts {
    id: "server.accept-rate",
    side: Side::Server,
    question: "Does the server accept too slowly?",
    doc: "In many servers one thread accepts, and does the handshakes too. When it is full, the accept \
          queue never empties, and whoever comes waits. It limits how many connect per second, not how many \
          are held.",
    how_to_see: "ss -ltn (Recv-Q stays above 0); top -H -p PID (one thread at 100%)",
    remedy_doc: "Several processes that accept (SO_REUSEPORT), or a slower ramp.",
};

/// From this share of a CPU on, a thread is full.
const FULL: f64 = 0.9;

/// From here on a SYN must have been sent again, or a client has noticed.
const SLOW_MS: f64 = 1_000.0;

impl Limit for ServerAcceptRate {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let rate = nice::about(run.establish.rate_per_second.max(0.0) as u64);
        let standing = standing(run);
        let harm = harm(run, &standing);
        let readable = run.series.iter().any(|m| m.accept_queue.is_some())
            || run.stages.iter().any(|s| s.listener.is_some());
        let accepts = format!("{} connections a second", units::count(rate));
        let (status, summary) = if evidence::not_begun(run) {
            (
                Status::Unknown,
                "unknown until measured: how fast the server accepts shows as they come".to_owned(),
            )
        } else if let Some(harm) = &harm {
            (Status::Hit, format!("a thread of the target is full accepting {accepts}: {harm}"))
        } else if !standing.is_empty() {
            (
                Status::Clear,
                format!("a thread of the target is full accepting {accepts}, and all were in time"),
            )
        } else if readable {
            (Status::Clear, format!("the target kept up with {accepts}"))
        } else {
            (Status::Unknown, "the target's accept queue cannot be seen from here".to_owned())
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, &standing);
        finding.remedy = remedy(run);
        finding
    }
}

/// Moments of opening in a row in which the queue stood non-empty while a thread of the target was full.
fn standing(run: &RunResult) -> Vec<&Moment> {
    let stands = |m: &Moment| {
        m.doing == "establish"
            && m.accept_queue.is_some_and(|n| n > 0)
            && m.target_busiest_cpus.is_some_and(|cpus| cpus >= FULL)
    };
    let runs = run.series.chunk_by(|a, b| stands(a) == stands(b));
    runs.filter(|run| run.len() >= 2 && stands(&run[0])).flatten().collect()
}

/// What came of it, in words; `None`: nothing that a client would notice.
fn harm(run: &RunResult, standing: &[&Moment]) -> Option<String> {
    // One that is out of descriptors spins in accept(), and accepts nothing.
    if standing.is_empty() || server_nofile::met(run).is_some() {
        return None;
    }
    let overflows: u64 = standing.iter().filter_map(|m| m.listen_overflows).sum();
    let phases = &run.establish.phases;
    let slowest = ["tcp", "ready"].iter().filter_map(|p| phases.get(*p)).map(|l| l.p99_ms).reduce(f64::max);
    let timeouts = evidence::failures(run, &[FailureKind::ConnectTimeout, FailureKind::ReadyTimeout]);
    if overflows > 0 || listen_accept_queue::explains(run) {
        Some("its accept queue overflowed".to_owned())
    } else if timeouts > 0 {
        Some(format!("{} were never served", evidence::counted(timeouts, "connection", "connections")))
    } else {
        let ms = slowest.filter(|ms| *ms >= SLOW_MS)?;
        Some(format!("connecting took {} at the 99th percentile", units::milliseconds(ms)))
    }
}

fn read(run: &RunResult, standing: &[&Moment]) -> Vec<String> {
    let mut out = Vec::new();
    if run.establish.seconds > 0.0 {
        out.push(format!(
            "{:.0} connections a second became ready, over {}",
            run.establish.rate_per_second,
            units::seconds(run.establish.seconds)
        ));
    }
    if let (Some(first), Some(last)) = (standing.first(), standing.last()) {
        let queued = standing.iter().filter_map(|m| m.accept_queue).max().unwrap_or(0);
        let cpus = standing.iter().filter_map(|m| m.target_busiest_cpus).fold(0.0, f64::max);
        out.push(format!(
            "at {} moments from {} to {} connections waited to be accepted, up to {}",
            standing.len(),
            units::seconds(first.t_seconds),
            units::seconds(last.t_seconds),
            units::count(queued)
        ));
        out.push(format!("the target's busiest thread used up to {cpus:.2} CPUs meanwhile"));
    } else if let Some(most) = run.series.iter().filter_map(|m| m.accept_queue).max() {
        out.push(format!("at most {} waited to be accepted at any moment", units::count(most)));
    }
    out
}

fn remedy(run: &RunResult) -> Vec<String> {
    let mut out = vec![match evidence::target_name(run) {
        Some("nginx") => {
            "listen 80 reuseport; # nginx.conf, in its listen line, with worker_processes auto".to_owned()
        }
        Some("haproxy") => format!("nbthread {} # haproxy.cfg, in global", run.host.cpus.max(2)),
        _ => "# let several threads or processes accept, each from its own queue (SO_REUSEPORT)".to_owned(),
    }];
    let rate = run.establish.rate_per_second / 2.0;
    let rate = if rate >= 1.0 { nice::about(rate as u64) } else { 1_000 };
    out.push("# or let them come more slowly:".to_owned());
    out.push(format!("plimsoll hold {} -c {} --rate {rate}", run.target.url, evidence::asked(run)));
    out
}

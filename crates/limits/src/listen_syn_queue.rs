//! Does the queue of half-open connections overflow?

use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, listen_accept_queue, nice, sysctl};

/// Connections of which the kernel has seen the SYN and not yet the last word of the handshake.
pub(crate) struct ListenSynQueue;

static FACTS: LimitFacts = LimitFacts {
    id: "listen.syn-queue",
    side: Side::Host,
    question: "Does the queue of half-open connections overflow?",
    doc: "A SYN waits in a queue until the client answers, as many as the listener's backlog. When it is \
          full, the kernel answers with a cookie and keeps nothing, which works; without cookies it drops \
          the SYN, from three quarters of tcp_max_syn_backlog on. It limits how many connect at once over \
          a long way, not how many are held.",
    how_to_see: "nstat -az TcpExtTCPReqQFullDrop TcpExtSyncookiesSent; ss -tn state syn-recv | wc -l",
    remedy_doc: "SYN cookies, a larger tcp_max_syn_backlog and backlog, a slower ramp.",
};

impl Limit for ListenSynQueue {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let here = run.settings.same_host;
        let drops = evidence::counted_rise(run, |tcp| tcp.request_queue_drops).filter(|_| here);
        let cookies = evidence::counted_rise(run, |tcp| tcp.syn_cookies).filter(|_| here);
        let backlog = listen_accept_queue::backlog(run);
        let (status, summary) = if let Some(drops) = drops.filter(|n| *n > 0) {
            let times = evidence::times(drops);
            if harmed(run) {
                (Status::Hit, format!("the queue of half-open connections was full and dropped SYNs {times}"))
            } else {
                (Status::Near, format!("SYNs were dropped {times}, and all connections opened in time"))
            }
        } else if let Some(cookies) = cookies.filter(|n| *n > 0) {
            let summary = format!(
                "the queue of half-open connections was full; {} went on with a cookie",
                evidence::counted(cookies, "connection", "connections")
            );
            (Status::Near, summary)
        } else if !here {
            let why = "the counters of the target's host cannot be read from here; run `plimsoll observe` there, and name it with --observer";
            (Status::Unknown, why.to_owned())
        } else if evidence::not_begun(run) {
            match backlog {
                Some(n) => {
                    let n = units::count(n);
                    (Status::Clear, format!("up to {n} may be half-open before a cookie is needed"))
                }
                None => (Status::Unknown, "the target's listening socket cannot be seen".to_owned()),
            }
        } else if drops.is_none() && cookies.is_none() {
            (Status::Unknown, "the kernel's counters of half-open connections could not be read".to_owned())
        } else {
            (Status::Clear, "the queue of half-open connections was never full".to_owned())
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, backlog);
        finding.remedy = remedy(run);
        finding
    }
}

/// Whether far more SYNs were dropped here than at the accept queue. A full accept queue counts each SYN that it turns
/// away, and so outnumbers what it leaves half-open; a few overflows are handshakes that ended at the same instant.
pub(crate) fn outweighs_overflows(run: &RunResult) -> bool {
    let drops = evidence::counted_rise(run, |tcp| tcp.request_queue_drops).unwrap_or(0);
    let overflows = evidence::counted_rise(run, |tcp| tcp.listen_overflows).unwrap_or(0);
    drops > 10 * overflows && harmed(run)
}

/// Whether connections timed out, or opened only after a SYN was sent again, in a stage in which SYNs were
/// dropped.
fn harmed(run: &RunResult) -> bool {
    let harmed = |stage: &Stage| {
        evidence::stage_failures(stage, &[FailureKind::ConnectTimeout]) > 0
            || evidence::syn_was_retried(stage.ready_latency)
    };
    evidence::stages_with_a_rise(run, |tcp| tcp.request_queue_drops).any(harmed)
        || evidence::syn_was_retried(evidence::tcp_latency(run))
}

fn read(run: &RunResult, backlog: Option<u64>) -> Vec<String> {
    let mut out = Vec::new();
    let (before, after) = (&run.before.tcp, &run.after.tcp);
    for (name, before, after) in [
        ("TCPReqQFullDrop", before.request_queue_drops, after.request_queue_drops),
        ("SyncookiesSent", before.syn_cookies, after.syn_cookies),
    ] {
        if before.is_some() && run.settings.same_host {
            let (before, after) = (evidence::number(before), evidence::number(after));
            out.push(format!("TcpExt {name} {before} before, {after} after"));
        }
    }
    let settings = &run.settings.host;
    out.push(format!(
        "the listener's backlog {}; net.ipv4.tcp_max_syn_backlog {}; net.core.somaxconn {}",
        evidence::number(backlog),
        evidence::number(settings.tcp_max_syn_backlog.filter(|_| run.settings.same_host)),
        evidence::number(settings.somaxconn.filter(|_| run.settings.same_host))
    ));
    let timeouts = evidence::failures(run, &[FailureKind::ConnectTimeout]);
    if timeouts > 0 {
        out.push(format!("{} connections {}", units::count(timeouts), FailureKind::ConnectTimeout.says()));
    }
    if let Some(latency) = evidence::tcp_latency(run).filter(|l| evidence::syn_was_retried(Some(*l))) {
        out.push(format!(
            "opening took {} at the 99th percentile: SYNs were sent again",
            units::milliseconds(latency.p99_ms)
        ));
    }
    out
}

fn remedy(run: &RunResult) -> Vec<String> {
    let queue = nice::lifted(evidence::asked(run)).clamp(1_024, 65_536);
    let mut out = vec!["# on the target's host; a full queue then drops nothing:".to_owned()];
    out.extend(sysctl::set("net.ipv4.tcp_syncookies", 1));
    if run.settings.host.tcp_max_syn_backlog.is_none_or(|most| most < queue) {
        out.extend(sysctl::set("net.ipv4.tcp_max_syn_backlog", queue));
    }
    out.push("# the queue is as long as the one for accept():".to_owned());
    out.extend(listen_accept_queue::remedy(run));
    out
}

#[cfg(test)]
mod tests {
    use model::FailureKind;
    use model::result::Status;

    use crate::testing::{self, finding};

    const ID: &str = "listen.syn-queue";

    #[test]
    fn cookies_alone_are_near_and_drops_that_hurt_are_hit() {
        let mut run = testing::run();
        run.after.tcp.syn_cookies = Some(12);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Near);
        assert!(found.summary.ends_with("10 connections went on with a cookie"), "{}", found.summary);
        run.stages[9].tcp.request_queue_drops = Some(21);
        assert_eq!(finding(run.clone(), ID).status, Status::Near);
        testing::fail_last(&mut run, FailureKind::ConnectTimeout, 20);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.remedy.contains(&"sysctl -w net.ipv4.tcp_max_syn_backlog=12000".to_owned()));
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn drops_in_one_stage_do_not_explain_failures_in_another() {
        let mut run = testing::run();
        for stage in &mut run.stages[2..] {
            stage.tcp.request_queue_drops = Some(21);
        }
        testing::fail_last(&mut run, FailureKind::ConnectTimeout, 20);
        assert_eq!(finding(run.clone(), ID).status, Status::Near);
        run.stages[2].ready_latency = Some(testing::latency(1_100.0));
        assert_eq!(finding(run, ID).status, Status::Hit);
    }

    #[test]
    fn clients_that_waited_for_it_and_were_served_in_the_end_name_it() {
        let mut run = testing::run();
        run.stages[2].tcp.request_queue_drops = Some(21);
        run.stages[2].ready_latency = Some(testing::latency(1_100.0));
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn the_accept_queue_is_the_cause_where_both_overflowed() {
        let mut run = testing::run();
        testing::fail_last(&mut run, FailureKind::ConnectTimeout, 20);
        run.stages[9].tcp.request_queue_drops = Some(21);
        run.stages[9].tcp.listen_overflows = Some(90);
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some("listen.accept-queue"));
        let mut run = run;
        run.stages[9].tcp.request_queue_drops = Some(2_100);
        run.stages[9].tcp.listen_overflows = Some(42);
        let run = testing::concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
    }

    #[test]
    fn another_hosts_counters_mean_nothing() {
        let mut run = testing::run();
        testing::hide_target(&mut run);
        run.after.tcp.request_queue_drops = Some(9_000);
        assert_eq!(finding(run, ID).status, Status::Unknown);
        assert_eq!(finding(testing::doctor(10_000), ID).status, Status::Clear);
    }
}

//! Does the server turn connections away at a number of its own?

use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, nice, server_nofile};

/// The server's own setting.
pub(crate) struct ServerMaxConnections;

static FACTS: LimitFacts = LimitFacts {
    id: "server.max-connections",
    side: Side::Server,
    question: "Does the server turn connections away at a number of its own?",
    doc: "Many servers have a setting for the most connections; beyond it they refuse in their own words \
          (SQLSTATE 53300, \"max number of clients reached\", HTTP 503), or accept and close. It is also \
          what a proxy or a load balancer in front of them does.",
    how_to_see: "the refusal's text; SHOW max_connections; CONFIG GET maxclients; nginx -T | grep \
        worker_connections",
    remedy_doc: "A higher number in the server's configuration, or fewer connections (a pooler).",
};

/// How a connection ends that the server does not want, if it says nothing.
const CLOSED: [FailureKind; 3] = [FailureKind::ClosedEarly, FailureKind::Closed, FailureKind::Reset];

impl Limit for ServerMaxConnections {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let refused = evidence::failures(run, &[FailureKind::ServerRefused]);
        let closed = evidence::failures(run, &CLOSED);
        let explained = server_nofile::met(run).is_some() || evidence::death(run).is_some();
        let mut finding = if let Some(refusal) = refusal(run) {
            let ceiling = units::count(refusal.held);
            let summary = match refusal.words {
                Some(words) => format!("beyond {ceiling} the server refuses: \"{}\"", quoted(words)),
                None if refused > 0 => format!("beyond {ceiling} the server refuses"),
                None => format!("the server closes what comes beyond {ceiling}"),
            };
            let mut finding = FACTS.finding(Status::Hit, summary);
            finding.ceiling_connections = Some(refusal.held);
            finding.evidence = refusal.evidence;
            finding
        } else if evidence::not_begun(run) {
            FACTS.finding(
                Status::Unknown,
                "a server's own setting shows only when it is met; see its configuration",
            )
        } else if closed > 0 && !explained {
            let summary = "the server closed connections, but not at one number more than once; \
                           --until-it-breaks would tell";
            FACTS.finding(Status::Unknown, summary)
        } else {
            let most = units::count(evidence::peak(run));
            FACTS.finding(Status::Clear, format!("the server refused none of up to {most} connections"))
        };
        finding.remedy = remedy(run);
        finding
    }
}

/// A number at which the server stopped by its own decision.
struct Refusal<'a> {
    /// The most connections that were held when it refused.
    held: u64,
    /// The server's words.
    words: Option<&'a str>,
    evidence: Vec<String>,
}

/// Either the server said so, or it closed connections in several stages at one and the same number while
/// neither its descriptors nor its life nor the host's memory explain it.
fn refusal(run: &RunResult) -> Option<Refusal<'_>> {
    let refused = evidence::failures(run, &[FailureKind::ServerRefused]);
    if refused > 0 {
        let refusing =
            run.stages.iter().filter(|s| evidence::stage_failures(s, &[FailureKind::ServerRefused]) > 0);
        let held = refusing.map(standing).max().unwrap_or(run.connections.held);
        let words = evidence::words(run, FailureKind::ServerRefused);
        let mut evidence = vec![format!(
            "{} connections were refused; at most {} were held then",
            units::count(refused),
            units::count(held)
        )];
        evidence.extend(words.map(|words| format!("the server said: \"{}\"", quoted(words))));
        return Some(Refusal { held, words, evidence });
    }
    let starved = evidence::host_oom_kills(run).unwrap_or(0) > 0 || evidence::cgroup_oom_kills(run) > 0;
    if starved || server_nofile::met(run).is_some() || evidence::death(run).is_some() {
        return None;
    }
    let closing: Vec<(usize, &Stage)> = evidence::failed_stages(run)
        .filter(|(_, s)| evidence::stage_failures(s, &CLOSED) > 0 && standing(s) > 0)
        .collect();
    let most = closing.iter().map(|(_, s)| standing(s)).max()?;
    let least = closing.iter().map(|(_, s)| standing(s)).min()?;
    if closing.len() < 2 || most - least > (most / 200).max(1) {
        return None;
    }
    let evidence = closing
        .iter()
        .map(|(number, s)| {
            let closed = evidence::stage_failures(s, &CLOSED);
            format!(
                "stage {number}: {} were asked for, {} stood, {} were closed by the server",
                units::count(s.connections),
                units::count(standing(s)),
                units::count(closed)
            )
        })
        .chain([format!("the target's descriptors were not at their limit{}", descriptors(run))])
        .collect();
    let words = CLOSED.iter().find_map(|kind| evidence::words(run, *kind));
    Some(Refusal { held: most, words, evidence })
}

/// How many connections stood at the end of a stage: those verified, if its verify pass got that far.
fn standing(stage: &Stage) -> u64 {
    if stage.verified > 0 { stage.verified } else { stage.ready }
}

fn descriptors(run: &RunResult) -> String {
    let most = evidence::target_readings(run).filter_map(|(_, g)| g.most_descriptors).max();
    match (most, evidence::lowest_nofile(&run.settings.target)) {
        (Some(most), Some(limit)) => format!(" ({} of {})", units::count(most), units::count(limit)),
        _ => " as far as can be seen".to_owned(),
    }
}

/// The first line of a server's words, not too long.
fn quoted(words: &str) -> String {
    words.lines().next().unwrap_or_default().chars().take(120).collect()
}

fn remedy(run: &RunResult) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let name = evidence::target_name(run).unwrap_or_default();
    let known: &[(&str, &str)] = &[
        (
            "postgres",
            "psql -c 'ALTER SYSTEM SET max_connections = {}' # then restart; or a pooler in front of it",
        ),
        ("pgbouncer", "max_client_conn = {} # pgbouncer.ini; needs as many descriptors"),
        ("redis-server", "redis-cli CONFIG SET maxclients {} # needs 32 descriptors more than that"),
        ("valkey-server", "valkey-cli CONFIG SET maxclients {} # needs 32 descriptors more than that"),
        (
            "nginx",
            "worker_connections {}; # nginx.conf, events { }; per worker, twice as many where it proxies",
        ),
        ("haproxy", "maxconn {} # haproxy.cfg, in global and in the frontend"),
        ("mysqld", "mysql -e 'SET PERSIST max_connections = {}'"),
        ("mongod", "net.maxIncomingConnections: {} # mongod.conf"),
        ("nats-server", "max_connections: {} # nats-server.conf"),
    ];
    let filled = |line: &str| line.replace("{}", &wanted.to_string());
    if let Some((_, line)) = known.iter().find(|(server, _)| *server == name) {
        return vec![filled(line)];
    }
    let mut out = vec![format!(
        "# set the server's own limit to {} or more; where it is, by server:",
        units::count(wanted)
    )];
    out.extend(known.iter().map(|(server, line)| format!("# {server}: {}", filled(line))));
    out
}

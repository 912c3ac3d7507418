//! Does the server turn connections away at a number of its own?

use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, nice, server_nofile, server_threads, views};

/// The server's own setting.
pub(crate) struct ServerMaxConnections;

static FACTS: LimitFacts = LimitFacts {
    id: "server.max-connections",
    side: Side::Server,
    question: "Does the server turn connections away at a number of its own?",
    doc: "Many servers have a setting for the most connections; beyond it they refuse in their own words \
          (SQLSTATE 53300, \"max number of clients reached\", HTTP 503), or accept and close, or close \
          those that are idle to make room (nginx), or stop to accept, so that the rest wait in the accept \
          queue and are never answered (HAProxy). It is also what a proxy in front of them does. PostgreSQL, \
          PgBouncer and Redis are asked for their own count and limit (--views).",
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
        let closed = evidence::failures(run, &CLOSED);
        let explained = server_nofile::met(run).is_some() || evidence::death(run).is_some();
        let mut finding = if let Some(refusal) = refusal(run) {
            let ceiling = units::count(refusal.ceiling);
            let summary = match refusal.words {
                Some(words) => {
                    format!("beyond {ceiling} the server refuses: \"{}\"", evidence::quoted(words))
                }
                None => refusal.manner.says(&ceiling),
            };
            let mut finding = FACTS.finding(Status::Hit, summary);
            finding.ceiling_connections = Some(refusal.ceiling);
            finding.evidence = refusal.evidence;
            finding
        } else if evidence::not_begun(run) && views::ceiling(run).is_none() {
            FACTS.finding(
                Status::Unknown,
                "a server's own setting shows only when it is met; see its configuration",
            )
        } else if closed > 0 && !explained {
            let summary = "the server closed connections, but not at one number more than once; \
                           --until-it-breaks would tell";
            FACTS.finding(Status::Unknown, summary)
        } else if let Some(finding) = counted(run) {
            finding
        } else {
            let most = units::count(evidence::peak(run));
            FACTS.finding(Status::Clear, format!("the server refused none of up to {most} connections"))
        };
        finding.evidence.extend(views::evidence(run));
        finding.remedy = remedy(run);
        finding
    }
}

/// What servers that count their own connections say, where none refused any.
fn counted(run: &RunResult) -> Option<Finding> {
    let (taken, places, fullest) = views::closest(run)?;
    let setting = views::limit_name(fullest);
    let crowded = taken as f64 >= 0.9 * places as f64;
    let by_ceiling = views::ceiling(run).map(|(ceiling, _)| evidence::status_by_ceiling(run, ceiling));
    let status = if crowded { Status::Near } else { by_ceiling.unwrap_or(Status::Clear) };
    let summary = format!(
        "{} of {} places that {setting} leaves were taken",
        units::count(taken),
        units::count(places)
    );
    let finding = FACTS.finding(status, summary);
    Some(match views::ceiling(run) {
        Some((ceiling, _)) => evidence::with_ceiling(finding, run, ceiling),
        None => finding,
    })
}

/// A number at which the server stopped by its own decision.
struct Refusal<'a> {
    /// The most connections that were held when it refused; or what it takes by its own words, if another's session
    /// that had just ended kept one of those places.
    ceiling: u64,
    /// The server's words.
    words: Option<&'a str>,
    manner: Manner,
    evidence: Vec<String>,
}

/// How a server turns connections away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It says so.
    Refuses,
    /// It closes those that come.
    ClosesNew,
    /// It closes those that are idle, to make room for those that come.
    ClosesIdle,
    /// It stops to accept; those that come wait in the kernel's queue.
    StopsAccepting,
}

impl Manner {
    fn says(self, ceiling: &str) -> String {
        match self {
            Self::Refuses => format!("beyond {ceiling} the server refuses"),
            Self::ClosesNew => format!("the server closes what comes beyond {ceiling}"),
            Self::ClosesIdle => {
                format!("the server keeps about {ceiling}, and closes idle ones to make room for more")
            }
            Self::StopsAccepting => {
                format!(
                    "the server stops to accept at {ceiling}; what comes beyond waits in its accept queue"
                )
            }
        }
    }
}

/// How soon a server closes what it does not want.
const AT_ONCE_MS: f64 = 1_000.0;
/// A server that makes room closes in batches: what stands varies by as much of it.
const BATCHES: f64 = 0.2;
/// A server that does not accept any more although it has nothing to do uses less than this of a CPU.
const IDLE_CPUS: f64 = 0.5;

/// Either the server said so, or it closed or ignored connections beyond one and the same number while neither its
/// descriptors nor its life nor the host's memory explain it.
fn refusal(run: &RunResult) -> Option<Refusal<'_>> {
    let refused = evidence::failures(run, &[FailureKind::ServerRefused]);
    if refused > 0 {
        let refusing =
            run.stages.iter().filter(|s| evidence::stage_failures(s, &[FailureKind::ServerRefused]) > 0);
        // Those that were let in, and refused at work, do not stand.
        let served = |s: &Stage| {
            let refused = evidence::stage_failures(s, &[FailureKind::ServerRefused]);
            standing(s).min(s.connections.saturating_sub(refused))
        };
        let fullest = refusing.max_by_key(|s| served(s));
        let held = fullest.map_or(run.connections.held, served);
        let ceiling = fullest.and_then(|s| views::room(s, held)).filter(|n| *n > held).unwrap_or(held);
        let words = evidence::words(run, FailureKind::ServerRefused);
        let mut evidence = vec![format!(
            "{} connections were refused; at most {} were held then",
            units::count(refused),
            units::count(held)
        )];
        evidence.extend(words.map(|words| format!("the server said: \"{}\"", evidence::quoted(words))));
        return Some(Refusal { ceiling, words, manner: Manner::Refuses, evidence });
    }
    let starved = evidence::host_oom_kills(run).unwrap_or(0) > 0 || evidence::cgroup_oom_kills(run) > 0;
    if starved || server_nofile::met(run).is_some() || evidence::death(run).is_some() {
        return None;
    }
    let closing: Vec<(usize, &Stage)> = evidence::failed_stages(run)
        .filter(|(_, s)| evidence::stage_failures(s, &CLOSED) > 0 && standing(s) > 0)
        .collect();
    let Some(most) = closing.iter().map(|(_, s)| standing(s)).max() else { return ignored(run) };
    let least = closing.iter().map(|(_, s)| standing(s)).min()?;
    let age = run.connections.closed_age;
    // Those that stood before stand still, and those that came were closed as they came.
    let at_once = age.is_some_and(|age| age.max_ms <= AT_ONCE_MS);
    let grown = closing.first()?.1.connections as f64 * 1.5 <= closing.last()?.1.connections as f64;
    let same = most - least <= (most / 200).max(1);
    let manner = if same && (closing.len() >= 2 || at_once) {
        Manner::ClosesNew
    } else if closing.len() >= 3 && grown && (most - least) as f64 <= BATCHES * most as f64 {
        Manner::ClosesIdle
    } else {
        return None;
    };
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
        .chain(age.map(|age| {
            format!(
                "those closed were {} old at most, half of them {}",
                units::milliseconds(age.max_ms),
                units::milliseconds(age.p50_ms)
            )
        }))
        .chain([format!("the target's descriptors were not at their limit{}", descriptors(run))])
        .collect();
    let words = CLOSED.iter().find_map(|kind| evidence::words(run, *kind));
    Some(Refusal { ceiling: most, words, manner, evidence })
}

/// A server that stopped to accept by its own decision: what stood goes on to be answered, what came waits in its
/// accept queue, and it has both time and descriptors to take it.
fn ignored(run: &RunResult) -> Option<Refusal<'_>> {
    let kinds = [FailureKind::Silent, FailureKind::ReadyTimeout];
    let (number, stage) = evidence::failed_stages(run)
        .find(|(_, s)| evidence::stage_failures(s, &kinds) > 0 && standing(s) > 0 && s.verified > 0)?;
    let waiting = stage.listener.as_ref().map(|l| l.queued).filter(|n| *n > 0)?;
    let ignored = evidence::stage_failures(stage, &kinds);
    let idle = stage.target.as_ref()?.busiest_thread_cpus.is_none_or(|cpus| cpus < IDLE_CPUS);
    // In the queue of one of several accepting processes at least its share of them.
    let in_queue = waiting * run.settings.target.len().max(1) as u64 >= ignored;
    if !idle || !in_queue || server_threads::are_met(run) {
        return None;
    }
    let evidence = vec![
        format!(
            "stage {number}: {} were asked for, {} were verified, {} were opened by the kernel and never answered",
            units::count(stage.connections),
            units::count(stage.verified),
            units::count(ignored)
        ),
        format!("{} connections waited to be accepted at its end", units::count(waiting)),
        format!("the target's descriptors were not at their limit{}", descriptors(run)),
    ];
    Some(Refusal { ceiling: stage.verified, words: None, manner: Manner::StopsAccepting, evidence })
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

fn remedy(run: &RunResult) -> Vec<String> {
    let wanted = nice::lifted(evidence::asked(run));
    let seen = evidence::target_name(run).unwrap_or_default();
    // What a server says of itself tells what it is, be it on another host or behind a load balancer.
    let name = views::closest(run).map_or(seen, |(_, _, view)| views::program(view));
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
        ("mosquitto", "max_connections {} # mosquitto.conf, below each listener"),
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

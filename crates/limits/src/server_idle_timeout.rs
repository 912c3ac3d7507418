//! Does the server close connections at a certain age?

use model::result::{Finding, Side, Stage, Status};
use model::{FailureKind, Latency, RunResult, units};

use crate::{Limit, LimitFacts, evidence, nice};

/// A time after which something in front of the connections closes them.
pub(crate) struct ServerIdleTimeout;

static FACTS: LimitFacts = LimitFacts {
    id: "server.idle-timeout",
    side: Side::Server,
    question: "Does the server close connections at a certain age?",
    doc: "Servers, proxies and load balancers close a connection on which nothing was said for a while, 60 \
          seconds in many, or which has reached a maximum age. It shows as held connections that close in \
          good order, all after the same time, whatever their number.",
    how_to_see: "nginx -T | grep timeout; redis-cli CONFIG GET timeout; SHOW idle_session_timeout",
    remedy_doc: "Heartbeats more often than that, or a longer timeout in the server.",
};

/// How the target ends a held connection.
const CLOSED: [FailureKind; 2] = [FailureKind::Closed, FailureKind::Reset];

/// Fewer connections than this may have closed at one age by chance.
const SEVERAL: u64 = 5;

/// What is closed sooner is not closed for its age, but not wanted.
const SHORTEST_SECONDS: f64 = 0.5;

/// What all closed connections have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Habit {
    /// They had been quiet for this many seconds.
    Quiet(f64),
    /// They had existed for this many seconds.
    Old(f64),
}

impl Limit for ServerIdleTimeout {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let closed = evidence::failures(run, &CLOSED);
        let ages = run.connections.closed_age.or(run.connections.closed_quiet);
        let habit = habit(run);
        let closings = || evidence::counted(closed, "connection was", "connections were");
        let (status, summary) = match habit {
            _ if evidence::not_begun(run) => (
                Status::Unknown,
                "a timeout of the server shows only when connections are held for longer".to_owned(),
            ),
            Some(Habit::Quiet(seconds)) => (
                Status::Hit,
                format!(
                    "the server closes what was quiet for {}: {} closed",
                    units::seconds(seconds),
                    closings()
                ),
            ),
            Some(Habit::Old(seconds)) => (
                Status::Hit,
                format!("the server closes what is {} old: {} closed", units::seconds(seconds), closings()),
            ),
            None if closed > 0 && ages.is_none() => {
                (Status::Unknown, format!("{} closed, at ages that were not recorded", closings()))
            }
            None if closed > 0 => (Status::Clear, format!("{} closed, but not at one age", closings())),
            None => (
                Status::Clear,
                format!("no held connection was closed in a run of {}", units::seconds(run.seconds)),
            ),
        };
        let mut finding = FACTS.finding(status, summary);
        finding.evidence = read(run, closed);
        finding.remedy = remedy(run, habit);
        finding
    }
}

/// The time that the closed connections share; `None`: none, or the target died, or it refused in words.
fn habit(run: &RunResult) -> Option<Habit> {
    let refused = evidence::failures(run, &[FailureKind::ServerRefused]);
    if refused > 0 || evidence::death(run).is_some() || evidence::failures(run, &CLOSED) < SEVERAL {
        return None;
    }
    let quiet = run.connections.closed_quiet.and_then(|l| one_time(&l)).filter(|s| !outlived(run, *s));
    let quiet = quiet.map(Habit::Quiet);
    let old = run.connections.closed_age.and_then(|l| one_time(&l)).filter(|s| !outgrown(run, *s));
    quiet.or_else(|| old.map(Habit::Old))
}

/// Whether earlier stages, in which nothing failed, let connections be quiet for as long: then no timeout of that
/// length closed the later ones. (nginx closes those longest idle to make room for new ones.)
fn outlived(run: &RunResult, quiet: f64) -> bool {
    let beats_are_rarer = run.spec.heartbeat_seconds.is_none_or(|interval| interval >= quiet);
    let quiet_stage = |s: &Stage| s.passed && s.idle.is_some_and(|idle| idle.seconds >= quiet);
    beats_are_rarer && run.stages.iter().any(|s| s.ready >= SEVERAL && quiet_stage(s))
}

/// Whether others came to that age and stood on.
fn outgrown(run: &RunResult, age: f64) -> bool {
    let end = run.stages.last().map_or(0.0, |s| s.t_seconds + s.seconds + s.idle.map_or(0.0, |i| i.seconds));
    let as_old = run.stages.iter().filter(|s| s.t_seconds + s.seconds <= end - age).map(|s| s.ready).max();
    as_old.is_some_and(|n| evidence::failures(run, &CLOSED) as f64 <= 0.8 * n as f64)
}

/// The time around which nearly all lie, in seconds: from the median to the 90th percentile it is not far.
fn one_time(latency: &Latency) -> Option<f64> {
    let (median, high) = (latency.p50_ms / 1e3, latency.p90_ms / 1e3);
    let narrow = high - median <= (0.05 * median).max(0.2);
    (latency.count >= SEVERAL && median >= SHORTEST_SECONDS && narrow).then_some(median)
}

fn read(run: &RunResult, closed: u64) -> Vec<String> {
    let mut out = Vec::new();
    if closed > 0 {
        let first = evidence::first_failure(run, &CLOSED);
        let first = first.map_or(String::new(), |t| format!(", the first at {}", units::seconds(t)));
        out.push(format!(
            "{} closed or reset by the target while held{first}",
            evidence::counted(closed, "connection was", "connections were")
        ));
    }
    let spread = |what: &str, latency: &Latency| {
        let ms = units::milliseconds;
        format!(
            "{what} {} at the median, {} at the 90th percentile ({} of them)",
            ms(latency.p50_ms),
            ms(latency.p90_ms),
            units::count(latency.count)
        )
    };
    out.extend(run.connections.closed_quiet.map(|l| spread("they had been quiet for", &l)));
    out.extend(run.connections.closed_age.map(|l| spread("they had existed for", &l)));
    out.push(match run.spec.heartbeat_seconds {
        Some(interval) => format!("one heartbeat per connection and {}", units::seconds(interval)),
        None => "no heartbeats were asked for".to_owned(),
    });
    out
}

fn remedy(run: &RunResult, habit: Option<Habit>) -> Vec<String> {
    let command = |interval: String| {
        format!("plimsoll hold {} -c {} --heartbeat {interval}", run.target.url, evidence::asked(run))
    };
    let name = evidence::target_name(run).unwrap_or_default();
    match habit {
        None => vec![
            "# should connections close after a quiet time: heartbeats more often than that".to_owned(),
            command(interval(run.spec.heartbeat_seconds.unwrap_or(20.0))),
        ],
        Some(Habit::Quiet(seconds)) => {
            let mut out = vec![
                "# heartbeats more often than the timeout, here and in the real clients:".to_owned(),
                command(interval(seconds / 2.0)),
            ];
            out.push("# or in the server a longer timeout:".to_owned());
            out.extend(setting(name, &idle_settings(seconds)));
            out
        }
        Some(Habit::Old(_)) => {
            let mut out =
                vec!["# no heartbeat helps: it ends connections by their age, in its settings:".to_owned()];
            out.extend(setting(name, &age_settings()));
            out.push("# or clients that connect again, spread over time".to_owned());
            out
        }
    }
}

/// A duration as the command line takes it, in whole seconds or tenths, never longer: `700ms`, `20s`.
fn interval(seconds: f64) -> String {
    if seconds >= 2.0 {
        format!("{:.0}s", seconds.floor())
    } else {
        format!("{:.0}ms", ((seconds * 10.0).floor() * 100.0).max(100.0))
    }
}

/// By server: the setting for a quiet connection. Ten times of what it is, or off.
fn idle_settings(seconds: f64) -> Vec<(&'static str, String)> {
    let longer = nice::up((seconds * 10.0).ceil() as u64);
    vec![
        (
            "nginx",
            format!("keepalive_timeout {longer}s; proxy_read_timeout {longer}s; # nginx.conf, in http"),
        ),
        (
            "haproxy",
            format!("timeout client {longer}s # haproxy.cfg, in defaults; also timeout server and tunnel"),
        ),
        ("redis-server", "redis-cli CONFIG SET timeout 0".to_owned()),
        ("valkey-server", "valkey-cli CONFIG SET timeout 0".to_owned()),
        (
            "postgres",
            "psql -c 'ALTER SYSTEM SET idle_session_timeout = 0' -c 'SELECT pg_reload_conf()'".to_owned(),
        ),
        ("pgbouncer", "client_idle_timeout = 0 # pgbouncer.ini".to_owned()),
        ("mysqld", format!("mysql -e 'SET PERSIST wait_timeout = {longer}'")),
        ("node", format!("server.keepAliveTimeout = {}; // in the program, in milliseconds", longer * 1_000)),
        ("go", format!("IdleTimeout: {longer} * time.Second, // in its http.Server")),
    ]
}

/// By server: the setting for the age of a connection.
fn age_settings() -> Vec<(&'static str, String)> {
    vec![
        ("nginx", "keepalive_time 24h; # nginx.conf, in http".to_owned()),
        ("envoy", "max_connection_duration: 0s # in common_http_protocol_options".to_owned()),
        ("grpc", "grpc.max_connection_age_ms = 2147483647 # in the server's channel arguments".to_owned()),
    ]
}

/// The line of the server that is known by its name; else all of them, as comments.
fn setting(name: &str, known: &[(&str, String)]) -> Vec<String> {
    match known.iter().find(|(server, _)| *server == name) {
        Some((_, line)) => vec![line.clone()],
        None => known.iter().map(|(server, line)| format!("# {server}: {line}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(p50_ms: f64, p90_ms: f64) -> Latency {
        Latency { count: 97, p50_ms, p90_ms, ..Latency::default() }
    }

    #[test]
    fn one_time_is_narrow_and_not_at_once() {
        assert_eq!(one_time(&closed(60_000.0, 62_900.0)), Some(60.0));
        assert_eq!(one_time(&closed(60_000.0, 63_100.0)), None);
        assert_eq!(one_time(&closed(1_000.0, 1_190.0)), Some(1.0));
        assert_eq!(one_time(&closed(3.0, 9.0)), None, "turned away, not grown old");
        assert_eq!(one_time(&Latency { count: 4, ..closed(60_000.0, 60_001.0) }), None);
    }

    #[test]
    fn intervals_are_written_as_they_are_read() {
        let written = [30.0, 2.9, 1.505, 0.01].map(interval);
        assert_eq!(written, ["30s", "2s", "1500ms", "100ms"]);
    }
}

//! Do clients wait at a pooler for a connection to the server?

use model::RunResult;
use model::observation::ServerView;
use model::result::{Finding, Side, Status};
use model::sweep::{Reading, Shape, SweepPoint};
use model::units;

use crate::{Limit, LimitFacts, evidence, nice, sweep};

/// The queue in front of a pooler's connections.
pub(crate) struct PoolerQueue;

/// Its name: it ends growth, and breaks nothing.
pub(crate) const ID: &str = "pooler.queue";

static FACTS: LimitFacts = LimitFacts {
    id: ID,
    side: Side::Between,
    question: "Do clients wait at a pooler for a connection to the server?",
    doc: "A pooler lets many clients share few connections to the server. When all of those are at work, clients \
          wait: throughput stands still, latency grows with the clients, and after query_wait_timeout they are \
          dropped. Clients that only hold a connection take none. A full server looks the same from outside; but then its CPUs are full, and at the pooler \
          nobody waits, or more connections would not help.",
    how_to_see: "psql -p 6432 pgbouncer -c 'SHOW POOLS' (cl_waiting, maxwait, sv_active against the pool's size)",
    remedy_doc: "A larger default_pool_size and max_db_connections in pgbouncer.ini, within the server's \
                 max_connections.",
};

/// What a pooler's view is read from, in its source.
const VIEW: &str = "SHOW POOLS";

/// What PgBouncer says to those that waited too long.
const TIMED_OUT: &str = "query_wait_timeout";

impl Limit for PoolerQueue {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let waits = waits(run);
        let (status, summary) = status(run, &waits);
        let mut finding = FACTS.finding(status, summary);
        if status == Status::Hit {
            finding.ceiling_connections = waits.pool;
        }
        finding.evidence = waits.evidence(run);
        finding.remedy = remedy(run, &waits);
        finding
    }
}

fn status(run: &RunResult, waits: &Waits) -> (Status, String) {
    if let Some(words) = timed_out(run) {
        return (Status::Hit, format!("clients waited too long at the pooler: \"{words}\""));
    }
    if evidence::not_begun(run) {
        return (Status::Unknown, "unknown until measured: who waits shows under load".to_owned());
    }
    let Some(reading) = run.sweep.as_ref().map(|sweep| &sweep.reading) else {
        let summary = "no client gave up waiting at a pooler; whether some wait is what a sweep shows";
        return (Status::Clear, summary.to_owned());
    };
    let said = waits.said();
    match (reading.shape, &said, full(run, reading)) {
        (Some(Shape::Queueing), Some(said), None) => (Status::Hit, said.clone()),
        (Some(Shape::Queueing), Some(said), Some(full)) => {
            (Status::Near, format!("{said}; but {full} are full: a larger pool would not help"))
        }
        (Some(Shape::Queueing), None, _) if waits.seen => {
            (Status::Clear, "throughput stands still, but nobody waits at the pooler".to_owned())
        }
        (Some(Shape::Queueing), None, Some(full)) if with_the_target(reading) => {
            (Status::Clear, format!("throughput stands still because {full} are full"))
        }
        (Some(Shape::Queueing), None, _) => (
            Status::Unknown,
            "throughput stands still, latency grows with the clients, and no CPU is seen to be full with the target: if \
             there is a pooler, its SHOW POOLS decides"
                .to_owned(),
        ),
        (_, Some(said), _) => (Status::Near, format!("{said}; but throughput does not stand still")),
        (_, None, _) => (Status::Clear, "nobody was seen to wait at a pooler".to_owned()),
    }
}

/// Which CPUs were full at the largest count that can be used, where the queue is longest.
fn full(run: &RunResult, reading: &Reading) -> Option<String> {
    reading.counts.iter().rev().find(|count| count.good).and_then(|count| sweep::full_at(run, count))
}

/// Whether it was the target that had most of the CPUs there: a host may also be full with others.
fn with_the_target(reading: &Reading) -> bool {
    let last = reading.counts.iter().rev().find(|count| count.good);
    last.is_some_and(|count| match (count.target_cpus, count.host_cpus) {
        (Some(target), Some(busy)) => target > busy / 2.0,
        (target, None) => target.is_some(),
        (None, Some(_)) => false,
    })
}

/// The words of a client that waited for too long.
fn timed_out(run: &RunResult) -> Option<&str> {
    let all = run.connections.failed_example.values();
    let swept = run.sweep.iter().flat_map(|sweep| &sweep.points).flat_map(|p| p.failed_example.values());
    let words = all.chain(swept).find(|words| words.contains(TIMED_OUT))?;
    words.lines().next()
}

/// What poolers said of their queues while clients worked.
#[derive(Default)]
struct Waits {
    /// Whether any said anything.
    seen: bool,
    /// The client count with the most waiting, and how many waited there.
    most: Option<(u64, u64)>,
    /// The longest that one had waited by then.
    longest_seconds: Option<f64>,
    /// Connections to servers then.
    connections: Option<u64>,
    /// What one pool may have.
    pool: Option<u64>,
}

fn views(point: &SweepPoint) -> impl Iterator<Item = &ServerView> {
    point.servers.iter().filter(|view| view.source.contains(VIEW))
}

fn waits(run: &RunResult) -> Waits {
    let mut out = Waits::default();
    for point in run.sweep.iter().flat_map(|sweep| &sweep.points) {
        out.pool = views(point).filter_map(|view| view.pool_limit).max().or(out.pool);
        let Some(waiting) = views(point).filter_map(|view| view.waiting).reduce(|a, b| a + b) else {
            continue;
        };
        out.seen = true;
        if waiting > out.most.map_or(0, |(_, most)| most) {
            out.most = Some((point.clients, waiting));
            out.longest_seconds = views(point).filter_map(|v| v.longest_wait_seconds).reduce(f64::max);
            out.connections = views(point).filter_map(|v| v.server_connections).reduce(|a, b| a + b);
        }
    }
    out
}

impl Waits {
    fn said(&self) -> Option<String> {
        let (clients, waiting) = self.most?;
        let shared = self.connections.map_or(String::new(), |n| {
            format!(" for one of {}", evidence::counted(n, "connection", "connections"))
        });
        let (waiting, clients) = (units::count(waiting), units::count(clients));
        Some(format!("{waiting} of {clients} clients waited at the pooler{shared}"))
    }

    fn evidence(&self, run: &RunResult) -> Vec<String> {
        let mut out = Vec::new();
        for point in run.sweep.iter().flat_map(|sweep| &sweep.points) {
            for view in views(point).filter(|view| view.waiting.is_some()) {
                let longest = view.longest_wait_seconds.map_or(String::new(), |seconds| {
                    format!(", the longest for {}", units::seconds(seconds))
                });
                out.push(format!(
                    "{} clients: {}: {} waited{longest}; {} connections to the server",
                    units::count(point.clients),
                    view.source,
                    evidence::number(view.waiting),
                    evidence::number(view.server_connections)
                ));
            }
        }
        // Where it began, and where it was worst, say enough.
        const QUOTED: usize = 6;
        let first = out.len().saturating_sub(QUOTED);
        out.drain(..first);
        out.extend(self.pool.map(|pool| {
            format!("one pool may have {}", evidence::counted(pool, "connection", "connections"))
        }));
        out
    }
}

/// What the server behind the pooler has left for more connections; `None`: it was not asked.
fn room(run: &RunResult, connections: u64) -> Option<(u64, u64)> {
    let views = run.sweep.iter().flat_map(|sweep| &sweep.points).flat_map(|point| &point.servers);
    let of_servers = views.filter(|view| !view.source.contains(VIEW));
    let rooms = of_servers.filter_map(|view| {
        let others = view.connections?.saturating_sub(connections);
        let limit = view.limit?;
        Some((limit.saturating_sub(view.reserved.unwrap_or(0)).saturating_sub(others), limit))
    });
    rooms.min()
}

fn remedy(run: &RunResult, waits: &Waits) -> Vec<String> {
    let mut out = Vec::new();
    match waits.pool {
        Some(pool) => {
            let wanted = nice::up(pool.saturating_mul(2));
            let room = room(run, waits.connections.unwrap_or(pool));
            let size = room.map_or(wanted, |(room, _)| wanted.min(room.max(pool)));
            if size > pool {
                out.push(format!("default_pool_size = {size} # pgbouncer.ini, then RELOAD; it is {pool}"));
                out.push(format!("# if max_db_connections is set there, {size} or more as well"));
            }
            match room {
                Some((room, limit)) if room < wanted => {
                    let needed = nice::up(limit + (wanted - room));
                    out.push(format!(
                        "psql -c 'ALTER SYSTEM SET max_connections = {needed}' # on the server, which has {limit}; then restart"
                    ));
                    out.push(format!("# then default_pool_size = {wanted}"));
                }
                Some((room, limit)) => {
                    out.push(format!("# the server's max_connections of {limit} has room for {room} in all"));
                }
                None => out.push(
                    "# the server's max_connections must have room for it: psql -c 'SHOW max_connections'"
                        .to_owned(),
                ),
            }
        }
        None => {
            out.push("# let the pooler say who waits, and how large its pools are:".to_owned());
            out.push("psql -p 6432 pgbouncer -c 'SHOW POOLS' -c 'SHOW CONFIG'".to_owned());
            out.push(
                "# where cl_waiting is not 0, raise default_pool_size in pgbouncer.ini, then RELOAD"
                    .to_owned(),
            );
        }
    }
    out.push("# more connections than the server has CPUs and disks for make it slower: sweep again after each step".to_owned());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep_testing::{pooled, servers, swept};
    use crate::testing::{concluded, finding};

    #[test]
    fn clients_that_wait_at_the_pooler_name_it_with_a_size() {
        let mut run = swept(&[8, 16, 32, 64, 128], servers(20.0));
        pooled(&mut run, 20, Some(100));
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(20)), "{found:?}");
        assert_eq!(found.summary, "108 of 128 clients waited at the pooler for one of 20 connections");
        assert!(found.remedy[0].starts_with("default_pool_size = 40 # pgbouncer.ini"), "{:?}", found.remedy);
        assert!(
            found.remedy.iter().any(|l| l == "# the server's max_connections of 100 has room for 97 in all")
        );
        let run = concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
        assert!(run.verdict.held, "it breaks nothing: {}", run.verdict.sentence);
    }

    #[test]
    fn it_is_named_where_fewer_clients_got_more() {
        let law = |n: f64| if n <= 64.0 { 480.0 * n } else { 25_500.0 };
        let mut run = swept(&[8, 64, 500, 2_000, 5_000], law);
        pooled(&mut run, 50, None);
        let run = concluded(run);
        assert_eq!(run.verdict.first_limit.as_deref(), Some(ID), "{}", run.verdict.sentence);
        let said = "peaks at 30,720/s with 64 clients, and stays at 25,500/s from 500 clients on; ";
        assert!(run.verdict.sentence.starts_with(said), "{}", run.verdict.sentence);
    }

    #[test]
    fn a_server_without_room_is_to_be_enlarged_first() {
        let mut run = swept(&[8, 16, 32, 64, 128], servers(20.0));
        pooled(&mut run, 20, Some(25));
        let found = finding(run, ID);
        assert!(found.remedy[0].starts_with("default_pool_size = 22 "), "{:?}", found.remedy);
        assert!(found.remedy.iter().any(|l| l.contains("max_connections = 43'")), "{:?}", found.remedy);
    }

    #[test]
    fn full_cpus_are_not_a_pooler() {
        let full = |run: &mut RunResult| {
            for point in &mut run.sweep.as_mut().unwrap().points {
                point.host_cpu_seconds = Some(1.98 * point.seconds);
                point.cpu.target_cpu_seconds = Some(1.7 * point.seconds);
            }
        };
        let mut run = swept(&[8, 16, 32, 64, 128], servers(20.0));
        assert_eq!(finding(run.clone(), ID).status, Status::Unknown, "no view and no full CPU");
        full(&mut run);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Clear);
        assert!(found.summary.contains("the host's CPUs (1.98 of 2"), "{}", found.summary);
        let mut others = run.clone();
        let points = &mut others.sweep.as_mut().unwrap().points;
        points.iter_mut().for_each(|point| point.cpu.target_cpu_seconds = Some(0.1));
        assert_eq!(finding(others, ID).status, Status::Unknown, "full with others than the target");
        pooled(&mut run, 20, None);
        let found = finding(run, ID);
        assert_eq!(found.status, Status::Near);
        assert!(found.summary.ends_with("a larger pool would not help"), "{}", found.summary);
    }

    #[test]
    fn a_pooler_at_which_nobody_waits_is_clear() {
        let mut run = swept(&[8, 16, 32, 64, 128], servers(20.0));
        pooled(&mut run, 200, Some(500));
        let found = finding(run, ID);
        assert_eq!(found.status, Status::Clear, "{found:?}");
        let mut grows = swept(&[8, 16, 32], servers(200.0));
        pooled(&mut grows, 20, None);
        assert_eq!(finding(grows, ID).status, Status::Near);
    }

    #[test]
    fn its_own_words_say_it_too() {
        let mut run = swept(&[8, 16], servers(20.0));
        let words = "FATAL: query_wait_timeout (SQLSTATE 08P01)";
        run.connections.failed_example.insert(model::FailureKind::ServerRefused, words.into());
        let found = finding(run, ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.summary.contains(words), "{}", found.summary);
    }
}

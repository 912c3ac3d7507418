//! What did servers say of their own connections, over a run?

use model::observation::ServerView;
use model::result::Stage;
use model::{RunResult, units};

use crate::evidence;

/// Every view of the run, with where it was read: before, in the midst of a sweep's measurements, at the end of each
/// stage, at the end.
fn all(run: &RunResult) -> Vec<(String, &ServerView)> {
    let mut out = Vec::new();
    read_at(&mut out, "the start", &run.before.servers);
    for point in run.sweep.iter().flat_map(|sweep| &sweep.points) {
        read_at(&mut out, &format!("{} clients at work", units::count(point.clients)), &point.servers);
    }
    for (index, stage) in run.stages.iter().enumerate() {
        read_at(&mut out, &format!("the end of stage {}", index + 1), &stage.servers);
    }
    read_at(&mut out, "the end", &run.after.servers);
    out
}

fn read_at<'a>(out: &mut Vec<(String, &'a ServerView)>, at: &str, views: &'a [ServerView]) {
    out.extend(views.iter().map(|view| (at.to_owned(), view)));
}

/// For each server that was asked, the reading in which it had most connections, in the order in which they were asked.
fn fullest(run: &RunResult) -> Vec<(String, &ServerView)> {
    let mut out: Vec<(String, &ServerView)> = Vec::new();
    for (at, view) in all(run) {
        match out.iter_mut().find(|(_, other)| other.source == view.source) {
            Some(most) if view.connections > most.1.connections => *most = (at, view),
            Some(_) => {}
            None => out.push((at, view)),
        }
    }
    out
}

/// The connections that a server takes of ordinary users.
fn places(view: &ServerView) -> Option<u64> {
    Some(view.limit?.saturating_sub(view.reserved.unwrap_or(0)))
}

/// What is left of the places of the one server that was asked, before the run took any. `None`: none tells, or
/// several do, and how connections are spread over them is not known.
pub(crate) fn ceiling(run: &RunResult) -> Option<(u64, &ServerView)> {
    let [view] = &run.before.servers[..] else { return None };
    Some((places(view)?.saturating_sub(view.connections.unwrap_or(0)), view))
}

/// What the one server that was asked at the end of a stage takes of this run, `held` of which stood then: its places
/// without those that it counted as others'. `None` as for [`ceiling`], or if it takes much more: then it refused for
/// another reason.
pub(crate) fn room(stage: &Stage, held: u64) -> Option<u64> {
    let [view] = &stage.servers[..] else { return None };
    let others = view.connections?.saturating_sub(held);
    places(view)?.checked_sub(others).filter(|room| *room <= held + (held / 20).max(2))
}

/// The server that came closest to its limit: how many connections it had, and how many it takes.
pub(crate) fn closest(run: &RunResult) -> Option<(u64, u64, &ServerView)> {
    let taken = fullest(run)
        .into_iter()
        .filter_map(|(_, view)| Some((view.connections?, places(view).filter(|most| *most > 0)?, view)));
    taken.max_by(|(a, of_a, _), (b, of_b, _)| {
        (*a as f64 / *of_a as f64).total_cmp(&(*b as f64 / *of_b as f64))
    })
}

/// A line for each server that was asked: the most that it counted, when, and what it takes.
pub(crate) fn evidence(run: &RunResult) -> Vec<String> {
    fullest(run).into_iter().map(|(at, view)| said(&at, view)).collect()
}

fn said(at: &str, view: &ServerView) -> String {
    let mut line = match view.connections {
        Some(n) => {
            format!("{} counted {} at {at}", view.source, evidence::counted(n, "connection", "connections"))
        }
        None => format!("{} was read at {at}", view.source),
    };
    if let Some(internal) = view.internal.filter(|n| *n > 0) {
        line += &format!(", {} of them from other nodes of its cluster", units::count(internal));
    }
    if let Some(limit) = view.limit {
        line += &format!("; {} {}", limit_name(view), units::count(limit));
    }
    if let Some(reserved) = view.reserved.filter(|n| *n > 0) {
        line += &format!(", {} of them reserved", units::count(reserved));
    }
    if let Some(behind) = view.server_connections {
        line +=
            &format!("; {} to the server behind it", evidence::counted(behind, "connection", "connections"));
    }
    if let Some(most) = view.pool_limit {
        line += &format!(" (default_pool_size {})", units::count(most));
    }
    if let Some(waiting) = view.waiting.filter(|n| *n > 0) {
        line += &format!("; {} waited", evidence::counted(waiting, "client", "clients"));
    }
    line
}

/// Which program it is, by where its view is read: as its process is called.
pub(crate) fn program(view: &ServerView) -> &'static str {
    match view.source.split(" at ").next() {
        Some("pg_stat_activity") => "postgres",
        Some("SHOW POOLS") => "pgbouncer",
        _ => "redis-server",
    }
}

/// What its limit is called in its settings.
pub(crate) fn limit_name(view: &ServerView) -> &'static str {
    match program(view) {
        "postgres" => "max_connections",
        "pgbouncer" => "max_client_conn",
        _ => "maxclients",
    }
}

#[cfg(test)]
mod tests {
    use model::FailureKind;
    use model::result::Status;

    use super::*;
    use crate::testing::{self, finding};

    fn postgres(at: &str, connections: u64, internal: u64) -> ServerView {
        ServerView {
            source: format!("pg_stat_activity at {at}"),
            connections: Some(connections),
            internal: Some(internal),
            limit: Some(100),
            reserved: Some(3),
            ..ServerView::default()
        }
    }

    fn judged(run: &RunResult) -> model::result::Finding {
        finding(run.clone(), "server.max-connections")
    }

    #[test]
    fn a_limit_that_is_told_before_is_a_ceiling() {
        let mut run = testing::doctor(200);
        assert_eq!(judged(&run).status, Status::Unknown);
        run.before.servers = vec![postgres("a:5432", 7, 0)];
        let found = judged(&run);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(90)));
        assert!(found.summary.starts_with("would stop at 90 of 200 asked"), "{found:?}");
        let told = "pg_stat_activity at a:5432 counted 7 connections at the start; max_connections 100, 3 of them reserved";
        assert_eq!(found.evidence, [told]);
        // of a server on another host, or behind a load balancer, whose process has another name
        assert!(found.remedy[0].starts_with("psql -c 'ALTER SYSTEM SET max_connections = 240'"), "{found:?}");
        run.spec.connections = 50;
        run.connections.requested = 50;
        assert_eq!(judged(&run).status, Status::Clear);
    }

    #[test]
    fn a_limit_that_is_not_told_stays_unknown() {
        let mut run = testing::doctor(200);
        run.before.servers = vec![ServerView { limit: None, ..postgres("a:5432", 7, 0) }];
        assert_eq!(judged(&run).status, Status::Unknown);
    }

    #[test]
    fn of_several_servers_the_fullest_is_told_and_no_ceiling() {
        let mut run = testing::sized(100, 2);
        run.before.servers = vec![postgres("a:5432", 0, 0), postgres("b:5432", 0, 0)];
        run.stages[1].servers = vec![postgres("a:5432", 60, 20), postgres("b:5432", 90, 50)];
        let found = judged(&run);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, None), "{found:?}");
        assert!(found.summary.starts_with("90 of 97 places"), "{found:?}");
        assert!(
            found.evidence[1].contains("90 connections at the end of stage 2, 50 of them from other nodes")
        );
        run.stages[1].servers[1].connections = Some(20);
        assert_eq!(judged(&run).status, Status::Clear);
    }

    #[test]
    fn what_it_counted_stands_beside_its_refusal() {
        let sizes = [(50, model::result::Purpose::Ramp), (200, model::result::Purpose::Ramp)];
        let mut run = testing::broken_at(97, &sizes, FailureKind::ServerRefused);
        run.stages[1].servers = vec![postgres("a:5432", 97, 0)];
        let found = judged(&run);
        assert_eq!((found.status, found.ceiling_connections), (Status::Hit, Some(97)), "{found:?}");
        assert!(found.evidence.iter().any(|e| e.contains("counted 97 connections")), "{found:?}");
    }

    #[test]
    fn a_place_that_was_not_yet_free_again_is_one_that_the_server_has() {
        let sizes = [(50, model::result::Purpose::Ramp), (200, model::result::Purpose::Ramp)];
        let mut run = testing::broken_at(96, &sizes, FailureKind::ServerRefused);
        for (counted, ceiling) in [(96, 97), (97, 96), (98, 96)] {
            run.stages[1].servers = vec![postgres("a:5432", counted, 0)];
            assert_eq!(judged(&run).ceiling_connections, Some(ceiling), "{counted}");
        }
        // refused far below what it says that it takes: for another reason
        run.stages[1].servers = vec![ServerView { limit: Some(500), ..postgres("a:5432", 96, 0) }];
        assert_eq!(judged(&run).ceiling_connections, Some(96));
    }

    #[test]
    fn a_pooler_tells_what_waits_and_what_it_holds_behind() {
        let pooler = ServerView {
            source: "SHOW POOLS at p:6432".to_owned(),
            connections: Some(1_200),
            waiting: Some(1),
            server_connections: Some(50),
            pool_limit: Some(50),
            limit: Some(2_000),
            ..ServerView::default()
        };
        assert_eq!(
            said("the end", &pooler),
            "SHOW POOLS at p:6432 counted 1,200 connections at the end; max_client_conn 2,000; 50 connections to \
             the server behind it (default_pool_size 50); 1 client waited"
        );
    }
}

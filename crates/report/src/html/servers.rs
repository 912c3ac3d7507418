//! What does the page show of the servers' own views? A row for each reading of each server.

use model::observation::ServerView;
use model::{RunResult, units};

use crate::words::{self, UNKNOWN};

/// One reading: when, of which server, and what it said; what its kind does not count is left empty.
pub(super) type ServerRow = [String; 8];

/// While a sweep's clients worked; of other runs at the end of each stage.
pub(super) fn rows(r: &RunResult) -> Vec<ServerRow> {
    let clients = |n: u64| format!("{} clients at work", units::count(n));
    match &r.sweep {
        Some(sweep) => sweep.points.iter().flat_map(|p| of(clients(p.clients), &p.servers)).collect(),
        None => r
            .stages
            .iter()
            .flat_map(|s| of(format!("stage of {}", units::count(s.connections)), &s.servers))
            .collect(),
    }
}

fn of(at: String, views: &[ServerView]) -> impl Iterator<Item = ServerRow> {
    let counted = |n: Option<u64>| n.map_or_else(String::new, units::count);
    views.iter().map(move |view| {
        [
            at.clone(),
            words::clean(&view.source),
            view.connections.map_or_else(|| UNKNOWN.to_owned(), units::count),
            counted(view.internal),
            counted(view.active),
            counted(view.waiting),
            counted(view.server_connections),
            match (view.limit, view.reserved) {
                (None, _) => UNKNOWN.to_owned(),
                (Some(limit), None | Some(0)) => units::count(limit),
                (Some(limit), Some(kept)) => {
                    format!("{}, {} reserved", units::count(limit), units::count(kept))
                }
            },
        ]
    })
}

#[cfg(test)]
mod tests {
    use model::sweep::SweepPoint;
    use model::{Spec, SweepResult, Target};

    use super::*;

    #[test]
    fn what_a_kind_does_not_count_is_empty_and_what_is_not_known_says_so() {
        let mut run = RunResult::new("hold", Spec::new(Target::parse("redis://127.0.0.1").unwrap(), 10));
        assert!(rows(&run).is_empty());
        let pooler = ServerView {
            source: "SHOW POOLS at <b>:6432".into(),
            connections: Some(1_200),
            waiting: Some(3),
            server_connections: Some(50),
            limit: Some(2_000),
            ..ServerView::default()
        };
        let bare = ServerView { source: "INFO at c:6379".into(), ..ServerView::default() };
        let point = SweepPoint { clients: 1_200, servers: vec![pooler, bare], ..SweepPoint::default() };
        run.sweep = Some(SweepResult { points: vec![point], ..SweepResult::default() });
        let rows = rows(&run);
        assert_eq!(rows[0][..2], ["1,200 clients at work", "SHOW POOLS at <b>:6432"]);
        assert_eq!(rows[0][2..], ["1,200", "", "", "3", "50", "2,000"]);
        assert_eq!(rows[1][2..], ["unknown", "", "", "", "", "unknown"]);
    }
}

//! What does PostgreSQL say of its connections? Its own view `pg_stat_activity`, and its settings.

use model::observation::ServerView;

use super::session::{Row, Session, Unsaid};
use super::{Server, Teller};

/// PostgreSQL, or what speaks like it.
pub(super) struct Postgres;

/// One row. Other nodes of a cluster connect under these names (`postgres_fdw`, Citus). What a login may not see has no
/// `backend_type`. `reserved_connections` is of PostgreSQL 16 and later.
const QUESTION: &str = "\
    SELECT count(*) FILTER (WHERE backend_type = 'client backend') AS connections, \
    count(*) FILTER (WHERE backend_type = 'client backend' \
      AND (application_name = 'postgres_fdw' OR application_name LIKE 'citus\\_internal%')) AS internal, \
    count(*) FILTER (WHERE backend_type = 'client backend' AND state = 'active') AS active, \
    count(*) FILTER (WHERE backend_type IS NULL AND usesysid IS NOT NULL AND datid IS NOT NULL) AS hidden, \
    current_setting('max_connections') AS most, \
    current_setting('superuser_reserved_connections')::int \
      + coalesce(current_setting('reserved_connections', true), '0')::int AS reserved \
    FROM pg_stat_activity WHERE pid <> pg_backend_pid()";

impl Teller for Postgres {
    fn ask(&self, server: &Server) -> Result<Option<ServerView>, String> {
        let source = format!("pg_stat_activity at {}", server.place());
        let unread = |why: Unsaid| {
            // Those of a server that is full, word for word the same in all versions.
            let full = matches!(&why, Unsaid::Refused { code, .. } if code == "53300");
            let hint = match full {
                true => "; a superuser's login in --views has places of its own",
                false => "; name a login that may connect with --views",
            };
            format!("cannot read {source}: {why}{hint}")
        };
        let database = server.target.database().unwrap_or_default();
        let mut session = Session::open(server, &database).map_err(unread)?;
        let rows = session.rows(QUESTION).map_err(unread)?;
        session.close();
        let row = rows.first().ok_or_else(|| format!("cannot read {source}: it gave no row"))?;
        let hidden = number(row, "hidden").unwrap_or(0);
        if hidden > 0 {
            let user = server.target.user().unwrap_or_default();
            return Err(format!(
                "{source} hides {hidden} connections of others from {user:?}; \
                 allow it to count them: GRANT pg_read_all_stats TO {user:?}"
            ));
        }
        Ok(Some(ServerView {
            source,
            connections: number(row, "connections"),
            internal: number(row, "internal"),
            active: number(row, "active"),
            limit: number(row, "most"),
            reserved: number(row, "reserved"),
            ..ServerView::default()
        }))
    }
}

/// A value that is a whole number.
pub(super) fn number(row: &Row, name: &str) -> Option<u64> {
    row.get(name)?.parse().ok()
}

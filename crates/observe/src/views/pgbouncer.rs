//! What does PgBouncer say of its connections? Its console: the database `pgbouncer` that it serves itself.

use model::observation::ServerView;

use super::postgres::number;
use super::session::{Row, Session, Unsaid};
use super::{Server, Teller};

/// PgBouncer.
pub(super) struct PgBouncer;

/// The database that is its console.
const CONSOLE: &str = "pgbouncer";
/// The SQLSTATE of whatever PgBouncer refuses itself; PostgreSQL says so of malformed messages alone.
const REFUSED_BY_POOLER: &str = "08P01";

impl Teller for PgBouncer {
    fn ask(&self, server: &Server) -> Result<Option<ServerView>, String> {
        let source = format!("SHOW POOLS at {}", server.place());
        let user = server.target.user().unwrap_or_default();
        let unread = |why: Unsaid| format!("cannot read {source}: {why}");
        let mut session = match Session::open(server, CONSOLE) {
            Ok(session) => session,
            Err(Unsaid::Refused { code, words }) if code == REFUSED_BY_POOLER => {
                return Err(format!(
                    "cannot read {source}: {words}; allow it in pgbouncer.ini: stats_users = {user}"
                ));
            }
            // PostgreSQL has no such database, or does not let this user in.
            Err(Unsaid::Refused { .. }) => return Ok(None),
            Err(why) => return Err(unread(why)),
        };
        // PostgreSQL after all, with a database of that name.
        if !session.version.contains("bouncer") {
            session.close();
            return Ok(None);
        }
        let pools = session.rows("SHOW POOLS").map_err(unread)?;
        let config = session.rows("SHOW CONFIG").map_err(unread)?;
        session.close();
        Ok(Some(view(source, &pools, &config)))
    }
}

/// Adds up its pools, all but the console's own.
fn view(source: String, pools: &[Row], config: &[Row]) -> ServerView {
    let pools: Vec<&Row> =
        pools.iter().filter(|pool| pool.get("database").is_none_or(|name| name != CONSOLE)).collect();
    let sum = |name: &str| -> u64 { pools.iter().filter_map(|pool| number(pool, name)).sum() };
    // How many there are differs by version: sv_active, sv_idle, sv_used, sv_tested, sv_login and more.
    let all_of = |pool: &&Row| -> u64 {
        let to_server = pool.keys().filter(|name| name.starts_with("sv_"));
        to_server.filter_map(|name| number(pool, name)).sum()
    };
    let waited = |pool: &&Row| {
        let micros = number(pool, "maxwait_us").unwrap_or(0);
        number(pool, "maxwait").unwrap_or(0) as f64 + micros as f64 / 1e6
    };
    let setting = |key: &str| {
        let row = config.iter().find(|row| row.get("key").is_some_and(|name| name == key))?;
        number(row, "value")
    };
    ServerView {
        source,
        connections: Some(sum("cl_active") + sum("cl_waiting")),
        active: Some(sum("sv_active")),
        waiting: Some(sum("cl_waiting")),
        longest_wait_seconds: Some(pools.iter().map(waited).fold(0.0, f64::max)),
        server_connections: Some(pools.iter().map(all_of).sum()),
        limit: setting("max_client_conn"),
        pool_limit: setting("default_pool_size"),
        ..ServerView::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pairs: &[(&str, &str)]) -> Row {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn pools_are_added_up_without_the_consoles_own() {
        let pool = |database, active, waiting, wait, micros| {
            row(&[
                ("database", database),
                ("cl_active", active),
                ("cl_waiting", waiting),
                ("sv_active", "4"),
                ("sv_idle", "1"),
                ("sv_login", "2"),
                ("maxwait", wait),
                ("maxwait_us", micros),
                ("pool_mode", "transaction"),
            ])
        };
        let pools = [
            pool("bench", "10", "3", "1", "500000"),
            pool("shop", "5", "0", "0", "0"),
            pool("pgbouncer", "1", "0", "9", "0"),
        ];
        let config = [
            row(&[("key", "max_client_conn"), ("value", "2000")]),
            row(&[("key", "default_pool_size"), ("value", "50")]),
        ];
        let view = view("here".to_owned(), &pools, &config);
        assert_eq!((view.connections, view.waiting, view.active), (Some(18), Some(3), Some(8)));
        assert_eq!((view.server_connections, view.longest_wait_seconds), (Some(14), Some(1.5)));
        assert_eq!((view.limit, view.pool_limit, view.reserved), (Some(2_000), Some(50), None));
    }
}

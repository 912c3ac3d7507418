//! What does a server say of its own limits? Only settings that decide how large pools may be.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::event::EventHandler;
use tokio::time::timeout;

use crate::bb8::Speaker as _;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::{Library, Server, mongodb as driver};

/// A server that does not say it soon does not say it.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server said; `None`: nothing of the kind, or this user may not ask.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Told {
    /// How many connections it takes from ordinary users.
    pub limit: Option<u64>,
    /// After how many seconds it closes an idle one.
    pub idle_seconds: Option<f64>,
}

pub(crate) async fn ask(server: &Server, library: Library) -> Told {
    let told = timeout(PATIENCE, async {
        match library {
            Library::Mongodb => mongodb(server).await,
            Library::Postgres => postgres(server).await,
            Library::Redis => redis(server).await,
            Library::Http => None,
        }
    });
    told.await.ok().flatten().unwrap_or_default()
}

async fn mongodb(server: &Server) -> Option<Told> {
    let client = driver::client(driver::options(server, EventHandler::callback(|_| ()), true).ok()?).ok()?;
    let status = client.database("admin").run_command(doc! { "serverStatus": 1 }).await;
    client.shutdown().await;
    let status: Document = status.ok()?;
    let connections = status.get_document("connections").ok()?;
    let number = |name: &str| match connections.get(name)? {
        Bson::Int32(n) => u64::try_from(*n).ok(),
        Bson::Int64(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    Some(Told { limit: number("current").zip(number("available")).map(|(a, b)| a + b), idle_seconds: None })
}

async fn postgres(server: &Server) -> Option<Told> {
    let (client, _) = Postgres::new(server).ok()?.connect().await.ok()?;
    // idle_session_timeout came with version 14; an older server has none.
    let of = "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, \
              coalesce((SELECT setting::int FROM pg_settings WHERE name = 'idle_session_timeout'), 0)";
    let rows = client.simple_query(of).await.ok()?;
    let row = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })?;
    let number = |column: usize| row.get(column)?.parse::<u64>().ok();
    // in milliseconds; 0 is never
    let idle = number(1).filter(|ms| *ms > 0).map(|ms| ms as f64 / 1e3);
    Some(Told { limit: number(0), idle_seconds: idle })
}

async fn redis(server: &Server) -> Option<Told> {
    let (mut connection, _) = Redis::new(server).connect().await.ok()?;
    let mut number = async |name: &str| {
        let mut command = redis::cmd("CONFIG");
        let answer = command.arg("GET").arg(name).query_async::<Vec<String>>(&mut connection).await;
        answer.ok()?.get(1)?.parse::<u64>().ok()
    };
    let limit = number("maxclients").await;
    // in seconds; 0 is never
    let idle_seconds = number("timeout").await.filter(|s| *s > 0).map(|s| s as f64);
    Some(Told { limit, idle_seconds })
}

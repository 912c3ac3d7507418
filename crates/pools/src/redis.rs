//! Redis: the redis crate in bb8's pool.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use tokio::time::Instant;

use crate::bb8::Speaker;
use crate::dial::{self, Setup};
use crate::{Facts, Server};

pub(crate) const FACTS: Facts = Facts {
    library: "bb8 0.9.1 with redis 1.8.1",
    counted_by: "each connect and each drop of bb8's connection manager",
    knows_minimum: true,
    knows_lifetime: true,
};

/// What is asked for: it need not be there.
const KEY: &str = "plimsoll:churn";

/// Opens connections, and asks each for one key.
pub(crate) struct Redis {
    server: Server,
    info: RedisConnectionInfo,
}

impl Redis {
    pub(crate) fn new(server: &Server) -> Self {
        let mut info = RedisConnectionInfo::default();
        if let Some(user) = server.target.user() {
            info = info.set_username(user);
        }
        if let Some(password) = server.target.password() {
            info = info.set_password(password);
        }
        Self { server: server.clone(), info }
    }
}

impl Speaker for Redis {
    type Connection = MultiplexedConnection;

    async fn connect(&self) -> Result<(MultiplexedConnection, Setup), String> {
        let (stream, mut setup) = dial::open(&self.server).await.map_err(|e| e.to_string())?;
        let began = Instant::now();
        let opened = MultiplexedConnection::new_with_config(&self.info, stream, AsyncConnectionConfig::new());
        let (connection, driver) = opened.await.map_err(|e| e.to_string())?;
        tokio::spawn(driver);
        // Whatever is said in this step is said at once: with a login it is part of that.
        let rest = Some(began.elapsed());
        if self.server.target.login.is_some() {
            setup.auth = rest;
        } else {
            setup.topology = rest;
        }
        Ok((connection, setup))
    }

    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        // As bb8-redis has it.
        redis::cmd("PING").query_async::<()>(connection).await.map_err(|e| e.to_string())
    }

    async fn operate(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let answer: Result<Option<Vec<u8>>, _> = redis::cmd("GET").arg(KEY).query_async(connection).await;
        answer.map(|_| ()).map_err(|e| e.to_string())
    }

    fn is_broken(&self, _connection: &mut MultiplexedConnection) -> bool {
        // As bb8-redis has it: the library cannot tell without asking the server.
        false
    }
}

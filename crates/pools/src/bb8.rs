//! bb8: the pool that Rust applications use with tokio-postgres and redis. What differs between those is a [`Speaker`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bb8::{ManageConnection, PooledConnection, RunError};
use tokio::time::Instant;

use crate::dial::Setup;
use crate::ledger::Ledger;
use crate::{Doing, Pool, PoolError, Settings, Trouble};

/// How often bb8 looks for connections that are idle or old (its source, `Builder::default`).
const REAPER: Duration = Duration::from_secs(30);

/// What bb8 lacks, or does its own way.
pub(crate) fn lacks(asked: &[Settings]) -> Vec<String> {
    let mut out = Vec::new();
    let quick = |time: Option<Duration>| time.is_some_and(|time| time < REAPER);
    if asked.iter().any(|s| quick(s.idle_timeout) || quick(s.max_lifetime)) {
        out.push(
            "bb8 0.9.1 looks for idle and old connections every 30 s only: a shorter --idle-timeout or --max-lifetime \
             was set, and takes effect at its next look"
                .to_owned(),
        );
    }
    out
}

/// A library's way to open a connection and to use it.
pub(crate) trait Speaker: Send + Sync + 'static {
    type Connection: Send + 'static;

    /// Opens a connection and logs in.
    fn connect(&self) -> impl Future<Output = Result<(Self::Connection, Setup), String>> + Send;

    /// What bb8 asks before it hands a connection out.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), String>> + Send;

    /// The operation.
    fn operate(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), String>> + Send;

    /// Whether it is known to have ended.
    fn is_broken(&self, connection: &mut Self::Connection) -> bool;
}

/// A connection whose end is counted.
pub(crate) struct Counted<C> {
    connection: C,
    ledger: Arc<Ledger>,
}

impl<C> Drop for Counted<C> {
    fn drop(&mut self) {
        self.ledger.closed();
    }
}

struct Manager<S> {
    speaker: Arc<S>,
    ledger: Arc<Ledger>,
}

impl<S: Speaker> ManageConnection for Manager<S> {
    type Connection = Counted<S::Connection>;
    type Error = String;

    async fn connect(&self) -> Result<Self::Connection, String> {
        let (connection, _) = self.speaker.connect().await?;
        self.ledger.created();
        Ok(Counted { connection, ledger: Arc::clone(&self.ledger) })
    }

    async fn is_valid(&self, counted: &mut Self::Connection) -> Result<(), String> {
        self.speaker.check(&mut counted.connection).await
    }

    fn has_broken(&self, counted: &mut Self::Connection) -> bool {
        self.speaker.is_broken(&mut counted.connection)
    }
}

/// A pool of one speaker's connections.
pub(crate) struct Bb8<S: Speaker> {
    pool: std::sync::Mutex<Option<bb8::Pool<Manager<S>>>>,
    speaker: Arc<S>,
    ledger: Arc<Ledger>,
}

impl<S: Speaker> Bb8<S> {
    /// Builds the pool; its minimum comes to stand in the background.
    ///
    /// # Errors
    /// What the first connection was answered: bb8 itself would try again for half a minute, and then say nothing of it.
    pub(crate) async fn new(
        speaker: S,
        settings: &Settings,
        ledger: &Arc<Ledger>,
    ) -> Result<Self, PoolError> {
        let speaker = Arc::new(speaker);
        speaker.connect().await.map_err(PoolError::Refused)?;
        let mut builder = bb8::Pool::builder().max_size(settings.max).min_idle(settings.min);
        if let Some(time) = settings.idle_timeout {
            builder = builder.idle_timeout(time);
        }
        if let Some(time) = settings.max_lifetime {
            builder = builder.max_lifetime(time);
        }
        if let Some(time) = settings.wait_timeout {
            builder = builder.connection_timeout(time);
        }
        let manager = Manager { speaker: Arc::clone(&speaker), ledger: Arc::clone(ledger) };
        let pool = std::sync::Mutex::new(Some(builder.build_unchecked(manager)));
        Ok(Self { pool, speaker, ledger: Arc::clone(ledger) })
    }

    fn pool(&self) -> Option<bb8::Pool<Manager<S>>> {
        self.pool.lock().ok()?.clone()
    }
}

impl<S: Speaker> Pool for Bb8<S> {
    fn operate(&self) -> Doing<'_, Result<(), Trouble>> {
        Box::pin(async {
            let Some(pool) = self.pool() else {
                return Err(Trouble::Failed("the pool was closed".to_owned()));
            };
            let began = Instant::now();
            let taken: Result<PooledConnection<'_, Manager<S>>, _> = pool.get().await;
            self.ledger.waited(began.elapsed());
            match taken {
                Ok(mut taken) => self.speaker.operate(&mut taken.connection).await.map_err(Trouble::Failed),
                Err(RunError::TimedOut) => Err(Trouble::TimedOut),
                Err(RunError::User(why)) => Err(Trouble::Failed(why)),
            }
        })
    }

    fn close(&self) -> Doing<'_, ()> {
        Box::pin(async {
            // Its last handle ends it.
            let pool = self.pool.lock().ok().and_then(|mut pool| pool.take());
            drop(pool);
        })
    }
}

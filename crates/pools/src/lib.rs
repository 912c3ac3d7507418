//! Real pools of well-kept libraries, a file each; the only room with tokio at run time.
//!
//! An application's connections live in a pool that somebody else wrote, and it is that pool's ways that decide what the
//! first operation after a quiet night costs. So nothing is imitated here: each file sets a library's own pool up as its
//! users do, and counts what it opens and closes. A setting that a library lacks is told by [`lacks`].

mod alarm;
mod bb8;
mod dial;
mod http;
mod ledger;
mod mongodb;
mod postgres;
mod price;
mod proxy;
mod redis;
mod room;
mod told;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use model::{Scheme, Target};
use thiserror::Error;

pub use ledger::Counts;
pub use room::{Burst, Room, Standing};
pub use told::Told;

/// How a pool is set up; `None`: as its library has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The least connections that it keeps.
    pub min: u32,
    /// The most that it may have.
    pub max: u32,
    /// How long a connection may be idle.
    pub idle_timeout: Option<Duration>,
    /// How old a connection may become.
    pub max_lifetime: Option<Duration>,
    /// How long an operation waits for a connection.
    pub wait_timeout: Option<Duration>,
}

/// Where a pool connects to.
#[derive(Clone)]
pub struct Server {
    /// As named by its URL.
    pub target: Target,
    /// One address that the name stands for.
    pub address: SocketAddr,
    /// What a TLS client believes; `None`: connections have no TLS.
    pub tls: Option<Tls>,
}

/// Whom a TLS client believes, and whom it speaks to.
#[derive(Clone)]
pub struct Tls {
    /// For the libraries that take a configuration.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the server's certificate must have.
    pub name: rustls::pki_types::ServerName<'static>,
    /// The same for the one that reads a file itself.
    pub ca: Option<PathBuf>,
    /// Believe any certificate.
    pub insecure: bool,
}

/// Why there is no pool.
#[derive(Debug, Error)]
pub enum PoolError {
    /// The operating system's word.
    #[error("{0}")]
    Os(#[from] std::io::Error),
    /// The server's kernel has nobody to give a connection to.
    #[error("the first connection was refused: nothing listens there; start the target first")]
    Nobody,
    /// No library is known that pools such connections.
    #[error("no pool is known for {0}://; known are mongodb, postgres, redis, rediss, http and https")]
    Unknown(Scheme),
    /// The library's or the server's word.
    #[error("{0}")]
    Refused(String),
}

/// A library's pool.
pub(crate) trait Pool: Send + Sync {
    /// Takes a connection, has the server do one cheap thing on it, and gives it back. Called by every task of a burst.
    fn operate(&self) -> Doing<'_, Result<(), Trouble>>;

    /// Ends its connections; called once, after the last operation.
    fn close(&self) -> Doing<'_, ()>;
}

pub(crate) type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why an operation was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection was free in time.
    TimedOut,
    /// Anything else, in its words.
    Failed(String),
}

/// Which pool stands for a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    Mongodb,
    Postgres,
    Redis,
    Http,
}

impl Library {
    pub(crate) fn of(scheme: Scheme) -> Result<Self, PoolError> {
        match scheme {
            Scheme::MongoDb => Ok(Self::Mongodb),
            Scheme::Postgres => Ok(Self::Postgres),
            Scheme::Redis | Scheme::Rediss => Ok(Self::Redis),
            Scheme::Http | Scheme::Https => Ok(Self::Http),
            other => Err(PoolError::Unknown(other)),
        }
    }
}

/// What is known of a library's pool without running it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its name with its version.
    pub library: &'static str,
    /// Where its connections are counted.
    pub counted_by: &'static str,
    /// Whether it can be told to keep a minimum.
    pub knows_minimum: bool,
    /// Whether it can be told how old a connection may become.
    pub knows_lifetime: bool,
}

/// What is known of the pool that stands for a scheme.
///
/// # Errors
/// If no pool does.
pub fn facts(scheme: Scheme) -> Result<Facts, PoolError> {
    Ok(match Library::of(scheme)? {
        Library::Mongodb => mongodb::FACTS,
        Library::Postgres => postgres::FACTS,
        Library::Redis => redis::FACTS,
        Library::Http => http::FACTS,
    })
}

/// What was asked of the pools of a run that a library has no setting for, or does its own way: in words, with what was
/// done about it.
///
/// # Errors
/// If no pool stands for the scheme.
pub fn lacks(scheme: Scheme, asked: &[Settings]) -> Result<Vec<String>, PoolError> {
    Ok(match Library::of(scheme)? {
        Library::Mongodb => mongodb::lacks(asked),
        Library::Postgres | Library::Redis => bb8::lacks(asked),
        Library::Http => http::lacks(asked),
    })
}

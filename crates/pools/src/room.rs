//! Where do pools live? One runtime for those of a run, and beside it, where a distance is asked for, the proxy that makes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::Latencies;
use model::churn::Price;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::bb8::Bb8;
use crate::http::Http;
use crate::ledger::{Ledger, nanoseconds};
use crate::mongodb::Mongodb;
use crate::postgres::Postgres;
use crate::proxy::Proxy;
use crate::redis::Redis;
use crate::{Counts, Library, Pool, PoolError, Server, Settings, Told, Trouble, dial, price, told};

/// How often a task that waits asks whether to go on.
const GLANCE: Duration = Duration::from_millis(20);
/// A minimum that has not come any nearer for so long will not come to stand: the MongoDB driver, as an example, makes no
/// more than four connections a second for it, and an idle time-out may close them as fast.
const WARM: Duration = Duration::from_secs(5);
/// The longest that a burst may take; what is not answered then has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// One distance to a server, and what is needed to have pools there.
pub struct Room {
    runtime: Runtime,
    server: Server,
    delay: Duration,
    library: Library,
    unchecked: bool,
    _proxy: Option<Proxy>,
}

impl Room {
    /// Makes the distance, once it is known that somebody listens at its end.
    ///
    /// # Errors
    /// If no pool stands for the scheme, nobody listens, or the operating system has no thread or socket.
    pub fn open(mut server: Server, delay: Duration) -> Result<Self, PoolError> {
        let library = Library::of(server.target.scheme)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("pool").build()?;
        // Asked of the server itself: through the proxy, nobody is only heard of as an end.
        match runtime.block_on(dial::tcp(&server)) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(PoolError::Nobody),
            other => drop(other?),
        }
        let proxy = if delay.is_zero() { None } else { Some(Proxy::start(server.address, delay)?) };
        let mut unchecked = false;
        if let Some(proxy) = &proxy {
            if library == Library::Mongodb && proxy.address.ip() != server.address.ip() {
                // The driver believes a certificate of the name that it connects to, which is now the proxy's.
                if let Some(tls) = server.tls.as_mut().filter(|tls| !tls.insecure) {
                    (tls.insecure, unchecked) = (true, true);
                }
            }
            server.address = proxy.address;
        }
        Ok(Self { runtime, server, delay, library, unchecked, _proxy: proxy })
    }

    /// What one connection costs from here, each of them alone.
    ///
    /// # Errors
    /// What the server answered.
    pub fn price(&self) -> Result<Price, PoolError> {
        self.runtime.block_on(price::of(&self.server, self.library, self.delay))
    }

    /// What is done otherwise than at the server itself, in words.
    pub fn lacks(&self) -> Vec<String> {
        let mut out = Vec::new();
        if !self.delay.is_zero() {
            out.push(format!(
                "the {} ms of distance are a proxy's on loopback, in front of the server: it has no loss and all of \
                 loopback's bandwidth",
                self.delay.as_secs_f64() * 1e3
            ));
        }
        if self.unchecked {
            out.push(
                "mongodb 3.8.1 checks a certificate against the name that it connects to, which is the proxy's: the \
                 server's was not checked"
                    .to_owned(),
            );
        }
        out
    }

    /// What the server says of its own limits.
    pub fn told(&self) -> Told {
        self.runtime.block_on(told::ask(&self.server, self.library))
    }

    /// Builds a pool and has it make a first operation, as an application that has been running has.
    ///
    /// # Errors
    /// What the library or the server said.
    pub fn pool(&self, settings: &Settings) -> Result<Standing<'_>, PoolError> {
        let ledger = Arc::new(Ledger::default());
        let pool: Arc<dyn Pool> = self.runtime.block_on(async {
            let server = &self.server;
            Ok::<Arc<dyn Pool>, PoolError>(match self.library {
                Library::Mongodb => Arc::new(Mongodb::new(server, settings, &ledger)?),
                Library::Postgres => Arc::new(Bb8::new(Postgres::new(server)?, settings, &ledger).await?),
                Library::Redis => Arc::new(Bb8::new(Redis::new(server), settings, &ledger).await?),
                Library::Http => Arc::new(Http::new(server, settings, &ledger)?),
            })
        })?;
        let standing = Standing { room: self, pool, ledger };
        match self.runtime.block_on(standing.pool.operate()) {
            Ok(()) => Ok(standing),
            Err(Trouble::TimedOut) => {
                Err(PoolError::Refused("the first operation found no connection in time".to_owned()))
            }
            Err(Trouble::Failed(why)) => Err(PoolError::Refused(why)),
        }
    }
}

/// A pool that stands.
pub struct Standing<'a> {
    room: &'a Room,
    pool: Arc<dyn Pool>,
    ledger: Arc<Ledger>,
}

/// What a burst was like.
#[derive(Debug, Default)]
pub struct Burst {
    /// The operation that asked the pool first: from the burst's instant to its answer, in nanoseconds.
    pub first: Option<u64>,
    /// All that were answered, from the burst's instant.
    pub operations: Latencies,
    /// How late each of them was begun.
    pub lag: Latencies,
    /// From the instant to the last answer.
    pub whole: Duration,
    /// Operations that found no connection in time.
    pub timeouts: u64,
    /// Operations that failed otherwise.
    pub failed: u64,
    /// The first words of a failure.
    pub example: Option<String>,
}

/// How one operation went.
struct Done {
    order: u64,
    begun: Duration,
    answered: Duration,
    outcome: Result<(), Trouble>,
}

impl Standing<'_> {
    /// Waits until so many connections stand; false: they do not, or it is not to go on.
    pub fn warm(&self, minimum: u64, goes_on: &dyn Fn() -> bool) -> bool {
        self.room.runtime.block_on(async {
            let (mut most, mut since) = (0, Instant::now());
            loop {
                let stand = self.counts().standing();
                if stand >= minimum {
                    return true;
                }
                if stand > most {
                    (most, since) = (stand, Instant::now());
                }
                if !goes_on() || since.elapsed() > WARM {
                    return false;
                }
                sleep(GLANCE).await;
            }
        })
    }

    /// So many operations at one instant; returns when all are answered, or it is not to go on.
    pub fn burst(&self, operations: u32, goes_on: &dyn Fn() -> bool) -> Burst {
        self.room.runtime.block_on(self.at_once(operations, goes_on))
    }

    async fn at_once(&self, operations: u32, goes_on: &dyn Fn() -> bool) -> Burst {
        let (release, released) = watch::channel(None::<Instant>);
        let there = Arc::new(AtomicU64::new(0));
        let order = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..operations {
            let (pool, there, order) = (Arc::clone(&self.pool), Arc::clone(&there), Arc::clone(&order));
            let mut released = released.clone();
            tasks.spawn(async move {
                there.fetch_add(1, Ordering::Relaxed);
                let instant = released.wait_for(Option::is_some).await.ok().and_then(|i| *i);
                let instant = instant.unwrap_or_else(Instant::now);
                let (begun, order) = (instant.elapsed(), order.fetch_add(1, Ordering::Relaxed));
                let outcome = pool.operate().await;
                Done { order, begun, answered: instant.elapsed(), outcome }
            });
        }
        // All of them stand at the line before the instant is named.
        while there.load(Ordering::Relaxed) < u64::from(operations) {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(1)).await;
        let instant = Instant::now();
        release.send_replace(Some(instant));
        let mut burst = Burst::default();
        while !tasks.is_empty() {
            match timeout(GLANCE, tasks.join_next()).await {
                Ok(Some(Ok(done))) => burst.take(done),
                Ok(Some(Err(why))) => burst.fail(why.to_string()),
                Ok(None) => break,
                Err(_) if !goes_on() => return burst,
                Err(_) if instant.elapsed() > PATIENCE => {
                    let words = format!("no answer within {} s", PATIENCE.as_secs());
                    (0..tasks.len()).for_each(|_| burst.fail(words.clone()));
                    return burst;
                }
                Err(_) => {}
            }
        }
        burst
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.ledger.counts()
    }

    /// How long operations waited for a connection since the last call.
    pub fn take_waits(&self) -> Latencies {
        self.ledger.take_waits()
    }

    /// Ends the pool and its connections.
    pub fn close(self) {
        self.room.runtime.block_on(async {
            // What hangs is left to its end with the runtime.
            let _ = timeout(Duration::from_secs(5), self.pool.close()).await;
        });
    }
}

impl Burst {
    fn take(&mut self, done: Done) {
        self.lag.record(nanoseconds(done.begun));
        self.whole = self.whole.max(done.answered);
        match done.outcome {
            Ok(()) => {
                let took = nanoseconds(done.answered);
                self.operations.record(took);
                if done.order == 0 {
                    self.first = Some(took);
                }
            }
            Err(Trouble::TimedOut) => self.timeouts += 1,
            Err(Trouble::Failed(why)) => self.fail(why),
        }
    }

    fn fail(&mut self, why: String) {
        self.failed += 1;
        self.example.get_or_insert(why);
    }
}

//! What does one connection cost, and what is that made of? Opened one after the other, each alone, by the pool's own
//! library; medians.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::churn::Price;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use tokio::time::{Instant, sleep};

use crate::bb8::Speaker;
use crate::dial::{self, Setup};
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::{Library, PoolError, Server, mongodb as driver};

/// How many are opened at the most.
const MOST: usize = 24;
/// After this long, fewer do.
const ENOUGH: Duration = Duration::from_secs(4);
/// The least.
const LEAST: usize = 3;
/// So long a connection of the driver's is kept idle while its price is asked for.
const MOMENT: Duration = Duration::from_millis(1);

/// The price of one connection at a delay.
pub(crate) async fn of(server: &Server, library: Library, delay: Duration) -> Result<Price, PoolError> {
    let price = match library {
        Library::Mongodb => mongodb(server, delay).await?,
        Library::Postgres => {
            let speaker = Postgres::new(server)?;
            sum(&several(async || speaker.connect().await.map(|(_, setup)| setup)).await?, delay)
        }
        Library::Redis => {
            let speaker = Redis::new(server);
            sum(&several(async || speaker.connect().await.map(|(_, setup)| setup)).await?, delay)
        }
        Library::Http => sum(&several(|| dialled(server)).await?, delay),
    };
    Ok(Price { network_delay_seconds: delay.as_secs_f64(), ..price })
}

async fn dialled(server: &Server) -> Result<Setup, String> {
    dial::open(server).await.map(|(_, setup)| setup).map_err(|e| e.to_string())
}

/// Opens some, one after the other.
async fn several<F: Future<Output = Result<Setup, String>>>(
    mut open: impl FnMut() -> F,
) -> Result<Vec<Setup>, PoolError> {
    let began = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < LEAST || seen.len() < MOST && began.elapsed() < ENOUGH {
        seen.push(open().await.map_err(PoolError::Refused)?);
    }
    Ok(seen)
}

/// A price whose parts were measured on the very same connections.
fn sum(seen: &[Setup], delay: Duration) -> Price {
    let seen: Vec<Setup> = seen.iter().map(|setup| placed(*setup, delay)).collect();
    let ready = |s: &Setup| s.tcp + [s.tls, s.topology, s.auth].into_iter().flatten().sum::<Duration>();
    Price {
        connections: seen.len() as u64,
        tcp_ms: median(seen.iter().map(|s| Some(s.tcp))),
        tls_ms: median(seen.iter().map(|s| s.tls)),
        topology_ms: median(seen.iter().map(|s| s.topology)),
        auth_ms: median(seen.iter().map(|s| s.auth)),
        ready_ms: median(seen.iter().map(|s| Some(ready(s)))),
        ..Price::default()
    }
}

/// Puts the round trip of TCP's set-up where it belongs: through the proxy, the first bytes wait for it.
fn placed(mut setup: Setup, delay: Duration) -> Setup {
    setup.tcp += delay;
    let first = [&mut setup.tls, &mut setup.topology, &mut setup.auth].into_iter().flatten().next();
    if let Some(first) = first {
        *first = first.saturating_sub(delay);
    }
    setup
}

/// The driver does not say what the parts of its set-up took: TCP and TLS are measured on sockets of our own, logging in as
/// the difference between connections that do and ones that do not, and the greeting is the rest.
async fn mongodb(server: &Server, delay: Duration) -> Result<Price, PoolError> {
    let own = sum(&several(|| dialled(server)).await?, delay);
    let ready = driven(server, true).await?;
    let connections = ready.len() as u64;
    let ready_ms = median(ready.into_iter().map(Some));
    let greeted_ms = match server.target.user() {
        None => ready_ms,
        Some(_) => median(driven(server, false).await?.into_iter().map(Some)),
    };
    let positive = |ms: f64| (ms > 0.0).then_some(ms);
    let opened = own.tcp_ms.unwrap_or(0.0) + own.tls_ms.unwrap_or(0.0);
    Ok(Price {
        connections,
        topology_ms: greeted_ms.and_then(|ms| positive(ms - opened)),
        auth_ms: server.target.user().and(ready_ms.zip(greeted_ms)).and_then(|(a, b)| positive(a - b)),
        ready_ms,
        ..own
    })
}

/// How long the driver says that connections took, each made alone: a connection that was idle for a moment is closed and
/// made anew by the next operation.
async fn driven(server: &Server, login: bool) -> Result<Vec<Duration>, PoolError> {
    let seen: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let into = Arc::clone(&seen);
    let events = EventHandler::callback(move |event: CmapEvent| {
        if let (CmapEvent::ConnectionReady(event), Ok(mut seen)) = (event, into.lock()) {
            seen.push(event.duration);
        }
    });
    let mut options = driver::options(server, events, login)?;
    options.max_idle_time = Some(MOMENT);
    let client = driver::client(options)?;
    let began = Instant::now();
    let count = || seen.lock().map_or(0, |seen| seen.len());
    while count() < LEAST || count() < MOST && began.elapsed() < ENOUGH {
        // A ping needs no login.
        driver::ping(&client, "admin").await.map_err(PoolError::Refused)?;
        sleep(5 * MOMENT).await;
        if began.elapsed() > 5 * ENOUGH {
            return Err(PoolError::Refused("the driver could not open connections to price".to_owned()));
        }
    }
    client.shutdown().await;
    Ok(seen.lock().map(|mut seen| std::mem::take(&mut *seen)).unwrap_or_default())
}

/// In milliseconds; `None` if a part is missing.
fn median(times: impl Iterator<Item = Option<Duration>>) -> Option<f64> {
    let mut times: Vec<Duration> = times.collect::<Option<_>>()?;
    times.sort();
    times.get(times.len() / 2).map(|time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_that_opens_tcp_is_taken_from_what_waited_for_it() {
        let ms = Duration::from_millis;
        let seen = Setup { tcp: ms(1), tls: Some(ms(62)), topology: None, auth: Some(ms(30)) };
        let price = sum(&[seen; 3], ms(20));
        let parts = (price.tcp_ms, price.tls_ms, price.topology_ms, price.auth_ms, price.ready_ms);
        assert_eq!(parts, (Some(21.0), Some(42.0), None, Some(30.0), Some(93.0)));
        let plain = sum(&[Setup { tcp: ms(1), ..Setup::default() }; 3], ms(20));
        assert_eq!((plain.tcp_ms, plain.ready_ms), (Some(21.0), Some(21.0)));
    }
}

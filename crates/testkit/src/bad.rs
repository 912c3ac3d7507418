//! Servers that misbehave on purpose: does Plimsoll notice, count and name it?
//!
//! Each is one thread that looks after all its connections in turn, without blocking on any, which is good for some
//! thousands of connections. They count what they did, so that a test can compare Plimsoll's count with theirs.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How a server misbehaves. Where it behaves, it echoes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// It does not misbehave at all.
    Echo,
    /// Accepts, and never says a word.
    Silent,
    /// Answers whatever comes with bytes that are no protocol.
    Garbage,
    /// Closes each connection as soon as it was accepted.
    ClosesAtOnce,
    /// Answers the first bytes with the first half of an HTTP head, and closes.
    ClosesHalfWay,
    /// Closes one connection in `one_in`, each `after` it was accepted; the seed decides which.
    ClosesAtRandom {
        /// One connection in this many.
        one_in: u64,
        /// How long a doomed connection lives.
        after: Duration,
        /// Decides which ones.
        seed: u64,
    },
    /// Closes at once whatever comes after the first `n` connections.
    RefusesAfter(u64),
    /// Stops reading one connection in `one_in` after its first echo: it stays open, and no answer comes any more.
    StopsReading {
        /// One connection in this many.
        one_in: u64,
        /// Decides which ones.
        seed: u64,
    },
}

/// What a server has done so far.
#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    misbehaved: AtomicU64,
}

/// A running bad server. Dropping it closes everything.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a bad server on a free port of 127.0.0.1.
///
/// # Errors
/// If no socket or thread is to be had.
pub fn start(kind: Kind) -> std::io::Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // the standard library's queue of 128 is shorter than a ramp; listening again only changes its length
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(Counts::default());
    let mut work = Work { kind, listener, connections: Vec::new(), counts: Arc::clone(&counts) };
    let told = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name(format!("bad-{}", addr.port())).spawn(move || {
        while !told.load(Ordering::Relaxed) {
            let start = now();
            if !work.turn(start) {
                // looking after many takes a while: three quarters of the CPU are left to the others
                sleep(REST.max(3 * (now() - start)));
            }
        }
    })?;
    Ok(Server { addr, stop, counts, thread: Some(thread) })
}

impl Server {
    /// How many connections it has accepted.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// On how many connections it has misbehaved.
    pub fn misbehaved(&self) -> u64 {
        self.counts.misbehaved.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // a panic in it has been printed already
            let _ = thread.join();
        }
    }
}

/// How long a server rests at least when nothing was to be done.
const REST: Duration = Duration::from_millis(1);

/// The time since some moment in the past.
fn now() -> Duration {
    let t = clock_gettime(ClockId::Monotonic);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

struct Connection {
    stream: TcpStream,
    doomed: bool,
    /// When it was accepted.
    since: Duration,
    deaf: bool,
}

struct Work {
    kind: Kind,
    listener: TcpListener,
    connections: Vec<Connection>,
    counts: Arc<Counts>,
}

impl Work {
    /// Looks after everything once; true: there was something to do.
    fn turn(&mut self, now: Duration) -> bool {
        let mut busy = self.accept(now);
        let mut buffer = [0u8; 4096];
        let (kind, counts) = (self.kind, &self.counts);
        self.connections.retain_mut(|connection| match connection.turn(kind, now, &mut buffer) {
            Turn::Idle => true,
            Turn::Busy => {
                busy = true;
                true
            }
            Turn::TurnedDeaf => {
                counts.misbehaved.fetch_add(1, Ordering::Relaxed);
                true
            }
            Turn::Misbehaved => {
                counts.misbehaved.fetch_add(1, Ordering::Relaxed);
                false
            }
            Turn::Gone => false,
        });
        busy
    }

    fn accept(&mut self, now: Duration) -> bool {
        let mut busy = false;
        // an empty queue ends this, as does a lack of descriptors
        while let Ok((stream, _)) = self.listener.accept() {
            busy = true;
            let number = self.counts.accepted.fetch_add(1, Ordering::Relaxed);
            let doomed = match self.kind {
                Kind::ClosesAtRandom { one_in, seed, .. } | Kind::StopsReading { one_in, seed } => {
                    chosen(number, one_in, seed)
                }
                Kind::ClosesAtOnce => true,
                Kind::RefusesAfter(n) => number >= n,
                _ => false,
            };
            if doomed && matches!(self.kind, Kind::ClosesAtOnce | Kind::RefusesAfter(_)) {
                self.counts.misbehaved.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection { stream, doomed, since: now, deaf: false });
            }
        }
        busy
    }
}

/// What a turn did to a connection.
enum Turn {
    /// Nothing.
    Idle,
    /// Something was read.
    Busy,
    /// From now on it is not read any more.
    TurnedDeaf,
    /// It is to be closed, out of malice.
    Misbehaved,
    /// The peer closed it, or it broke.
    Gone,
}

impl Connection {
    fn turn(&mut self, kind: Kind, now: Duration, buffer: &mut [u8]) -> Turn {
        if self.deaf {
            return Turn::Idle;
        }
        if let Kind::ClosesAtRandom { after, .. } = kind
            && self.doomed
            && now.saturating_sub(self.since) >= after
        {
            return Turn::Misbehaved;
        }
        let n = match self.stream.read(buffer) {
            Ok(0) => return Turn::Gone,
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Turn::Idle;
            }
            Err(_) => return Turn::Gone,
        };
        let answer: &[u8] = match kind {
            Kind::Silent => return Turn::Busy,
            Kind::Garbage => b"\x00\xff\x81\x02\x13garbage\r\r\n\n\x7f\x80",
            Kind::ClosesHalfWay => b"HTTP/1.1 101 Switching Proto",
            _ => &buffer[..n],
        };
        if self.stream.write_all(answer).is_err() {
            return Turn::Gone;
        }
        match kind {
            Kind::ClosesHalfWay => Turn::Misbehaved,
            Kind::StopsReading { .. } if self.doomed => {
                self.deaf = true;
                Turn::TurnedDeaf
            }
            _ => Turn::Busy,
        }
    }
}

/// Whether the seed picks this connection: one in `one_in` on average, the same ones each time.
fn chosen(number: u64, one_in: u64, seed: u64) -> bool {
    // splitmix64
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).is_multiple_of(one_in.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(server: &Server) -> TcpStream {
        let stream = TcpStream::connect(server.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    }

    /// Sends, and gives what comes back in one read; an empty answer: closed.
    fn ask(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text)?;
        let mut buffer = [0u8; 100];
        let n = stream.read(&mut buffer)?;
        Ok(buffer[..n].to_vec())
    }

    /// Whether it was closed, with or without a goodbye.
    fn closed(answer: &std::io::Result<Vec<u8>>) -> bool {
        match answer {
            Ok(bytes) => bytes.is_empty(),
            Err(e) => matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }

    #[test]
    fn the_well_behaved_one_echoes() {
        let server = start(Kind::Echo).unwrap();
        let mut stream = open(&server);
        assert_eq!(ask(&mut stream, b"hello").unwrap(), b"hello");
        assert_eq!((server.accepted(), server.misbehaved()), (1, 0));
    }

    #[test]
    fn the_silent_one_says_nothing() {
        let server = start(Kind::Silent).unwrap();
        let mut stream = open(&server);
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ask(&mut stream, b"hello").unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn garbage_and_half_an_answer() {
        let server = start(Kind::Garbage).unwrap();
        assert!(ask(&mut open(&server), b"hello").unwrap().starts_with(b"\x00\xff"));
        let server = start(Kind::ClosesHalfWay).unwrap();
        let mut stream = open(&server);
        assert!(ask(&mut stream, b"GET / HTTP/1.1\r\n\r\n").unwrap().starts_with(b"HTTP/1.1 101"));
        assert!(closed(&ask(&mut stream, b"more")));
        assert_eq!(server.misbehaved(), 1);
    }

    #[test]
    fn closing_at_once_and_refusing_after_some() {
        let server = start(Kind::ClosesAtOnce).unwrap();
        assert!(closed(&ask(&mut open(&server), b"hello")));
        let server = start(Kind::RefusesAfter(3)).unwrap();
        let mut streams: Vec<_> = (0..5).map(|_| open(&server)).collect();
        let lost = streams.iter_mut().map(|s| ask(s, b"hello")).filter(closed).count();
        assert_eq!((lost, server.accepted(), server.misbehaved()), (2, 5, 2));
    }

    #[test]
    fn the_seed_decides_who_is_closed_or_ignored() {
        let picked = |seed| (0..997).filter(|n| chosen(*n, 100, seed)).count();
        assert!((1..40).contains(&picked(7)), "{}", picked(7));
        assert_eq!(picked(7), picked(7));

        let expected = (0..97).filter(|n| chosen(*n, 10, 5)).count();
        let server =
            start(Kind::ClosesAtRandom { one_in: 10, after: Duration::from_millis(300), seed: 5 }).unwrap();
        let mut streams: Vec<_> = (0..97).map(|_| open(&server)).collect();
        assert!(streams.iter_mut().all(|s| ask(s, b"hello").is_ok_and(|a| a == b"hello")));
        while server.misbehaved() < expected as u64 {
            sleep(REST);
        }
        let lost = streams.iter_mut().map(|s| ask(s, b"hello")).filter(closed).count();
        assert_eq!((lost, server.misbehaved()), (expected, expected as u64));
    }

    #[test]
    fn the_deaf_one_answers_once() {
        let server = start(Kind::StopsReading { one_in: 1, seed: 0 }).unwrap();
        let mut stream = open(&server);
        assert_eq!(ask(&mut stream, b"hello").unwrap(), b"hello");
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(ask(&mut stream, b"hello").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(server.misbehaved(), 1);
    }
}

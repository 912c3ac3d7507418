//! Servers whose throughput is known beforehand: does Plimsoll find the law that they follow?
//!
//! They echo lines of 32 bytes, as the tcp driver says them. When an answer leaves is computed as its question arrives,
//! from that moment and from who else is being served; no CPU is used. A client that asks again at once is taken to have
//! asked as the last answer was due, so that a machine that is late with timers and wake-ups makes answers uneven, but not
//! fewer. Each connection has a thread, which is good for some hundreds of connections.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long a line is.
const LINE: usize = 32;

/// Who asks again within so many seconds has made no pause: it is the machine that was late.
const NO_PAUSE: f64 = 0.05;

/// What decides when an answer leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// So many servers, each of which takes a fixed time for an operation; who finds none free queues.
    /// `X(N) = min(N, servers) / seconds`.
    Servers {
        /// How many work at the same time.
        servers: usize,
        /// What each takes for an operation.
        seconds: f64,
    },
    /// An operation takes longer for each other one under way, as the Universal Scalability Law has it.
    /// `X(N) = N / seconds / (1 + sigma (N - 1) + kappa N (N - 1))`; with a kappa of 0 it is Amdahl's law.
    Usl {
        /// What an operation takes that is alone.
        seconds: f64,
        /// Contention.
        sigma: f64,
        /// Coherency.
        kappa: f64,
    },
}

impl Law {
    /// Operations a second with so many clients that never pause.
    pub fn per_second(&self, clients: f64) -> f64 {
        match *self {
            Self::Servers { servers, seconds } => clients.min(servers as f64) / seconds,
            Self::Usl { seconds, sigma, kappa } => {
                clients / seconds / (1.0 + sigma * (clients - 1.0) + kappa * clients * (clients - 1.0))
            }
        }
    }
}

/// Who is being served.
#[derive(Debug, Default)]
struct Desk {
    /// Of each server: from when it is free.
    free_at: Vec<f64>,
    /// Of each client, when its last answer leaves.
    leaves: BTreeMap<u64, f64>,
}

impl Desk {
    /// When the answer leaves to what a client asks `now`.
    fn departure(&mut self, law: Law, client: u64, now: f64) -> f64 {
        let last = self.leaves.get(&client).copied();
        let asked = last.filter(|last| now - last <= NO_PAUSE).unwrap_or(now);
        let leaves = match law {
            Law::Servers { servers, seconds } => {
                self.free_at.resize(servers.max(1), 0.0);
                // The one that has been idle for the shortest time, else the one that is free next.
                let order =
                    |free_at: &f64| (*free_at > asked, if *free_at > asked { *free_at } else { -free_at });
                let next = self.free_at.iter_mut().min_by(|a, b| {
                    let ((a_busy, a), (b_busy, b)) = (order(a), order(b));
                    a_busy.cmp(&b_busy).then(a.total_cmp(&b))
                });
                next.map_or(asked, |free_at| {
                    *free_at = free_at.max(asked) + seconds;
                    *free_at
                })
            }
            Law::Usl { seconds, sigma, kappa } => {
                let at_work =
                    |(other, leaves): &(&u64, &f64)| **other != client && **leaves > asked - NO_PAUSE;
                let others = self.leaves.iter().filter(at_work).count() as f64;
                asked + seconds * (1.0 + sigma * others + kappa * others * (others + 1.0))
            }
        };
        self.leaves.insert(client, leaves);
        leaves
    }
}

/// A running server. Dropping it closes everything.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    /// What is open; `None`: it is to end.
    open: Mutex<Option<Vec<TcpStream>>>,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a server that follows a law on a free port of 127.0.0.1.
///
/// # Errors
/// If no socket or thread is to be had.
pub fn start(law: Law) -> std::io::Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&listener, 4096)?;
    let addr = listener.local_addr()?;
    let shared = Arc::new(Shared { open: Mutex::new(Some(Vec::new())), ..Shared::default() });
    let told = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("law".to_owned()).spawn(move || {
        for client in 0.. {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut open = told.open.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = open.as_mut() else { return };
            open.retain(|stream| stream.peer_addr().is_ok());
            let Ok(other) = stream.try_clone() else { continue };
            open.push(other);
            let shared = Arc::clone(&told);
            // a connection that gets no thread is closed with its stream
            let _ = std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || serve(stream, law, client, &shared));
        }
    })?;
    Ok(Server { addr, shared, thread: Some(thread) })
}

/// Answers each line when the law lets it, until the client is gone.
fn serve(mut stream: TcpStream, law: Law, client: u64, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut line = [0_u8; LINE];
    while read_line(&mut stream, &mut line) {
        let leaves = shared.desk().departure(law, client, now());
        sleep(Duration::from_secs_f64((leaves - now()).max(0.0)));
        if stream.write_all(&line).is_err() {
            break;
        }
    }
    shared.desk().leaves.remove(&client);
    // its other handle would keep it open
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_line(stream: &mut TcpStream, line: &mut [u8; LINE]) -> bool {
    loop {
        match stream.read_exact(line) {
            Ok(()) => return true,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// Seconds of the monotonic clock.
fn now() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

impl Drop for Server {
    fn drop(&mut self) {
        let open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        for stream in open.into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // its accept() returns
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            // a panic in it has been printed already
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a closed loop of so many clients gets a second, by a clock that only jumps from answer to answer.
    fn simulated(law: Law, clients: usize) -> f64 {
        const OPERATIONS: u32 = 20_000;
        let mut desk = Desk::default();
        // who has which answer when; the first questions come a little apart
        let mut answers: Vec<f64> =
            (0..clients).map(|client| desk.departure(law, client as u64, client as f64 * 1e-7)).collect();
        let mut last = 0.0;
        for turn in 0..OPERATIONS {
            let next = (0..clients).min_by(|a, b| answers[*a].total_cmp(&answers[*b])).unwrap();
            last = answers[next];
            // the machine is late by up to 30 ms
            let late = f64::from(turn % 31) * 1e-3;
            answers[next] = desk.departure(law, next as u64, last + late);
        }
        f64::from(OPERATIONS) / last
    }

    #[test]
    fn each_follows_its_law() {
        let servers = Law::Servers { servers: 8, seconds: 0.02 };
        let usl = Law::Usl { seconds: 0.02, sigma: 0.05, kappa: 0.002 };
        for clients in [1, 2, 7, 8, 9, 20, 64] {
            for law in [servers, usl] {
                let (found, truth) = (simulated(law, clients), law.per_second(clients as f64));
                assert!((found / truth - 1.0).abs() < 0.02, "{law:?}, {clients}: {found}, not {truth}");
            }
        }
    }

    #[test]
    fn what_is_said_comes_back_no_sooner_than_the_law_lets_it() {
        let server = start(Law::Servers { servers: 1, seconds: 0.05 }).unwrap();
        let mut clients =
            [TcpStream::connect(server.addr).unwrap(), TcpStream::connect(server.addr).unwrap()];
        let began = now();
        for (client, letter) in clients.iter_mut().zip(*b"ab") {
            client.write_all(&[letter; LINE]).unwrap();
        }
        let mut line = [0; LINE];
        for (client, letter) in clients.iter_mut().zip(*b"ab") {
            client.read_exact(&mut line).unwrap();
            assert_eq!(line, [letter; LINE]);
        }
        assert!(now() - began >= 0.1, "one after the other");
        drop(server);
        assert_eq!(clients[0].read(&mut line).unwrap_or(0), 0, "it is closed");
    }
}

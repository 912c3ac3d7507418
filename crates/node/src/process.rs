//! What does one process of the node do? It accepts, serves, keeps event streams alive and closes what is idle.

use std::io::{self, BufRead as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use model::Scheme;
use protocols::serve::{Service, Slot};
use protocols::{Cue, Fact};
use reactor::clock::{self, Nanos};
use reactor::pace::{Schedule, Walk};
use reactor::{End, Owner, Reactor, socket};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::board::{Board, Count};
use crate::{Config, NodeError};

/// How long a handshake, request or frame may stay half received.
const HALFWAY: Nanos = 30 * clock::SECOND;
/// Bytes that may wait for a client that does not read.
const UNSENT_LIMIT: usize = 4 * 1024 * 1024;
/// What the allocator adds to each allocation: ballast is what a session takes in all.
const ALLOCATOR_HEADER: u64 = 8;
/// How often connections are looked through for those that are idle or halfway for too long.
const LOOK_EVERY: Nanos = clock::SECOND;

/// What the supervisor hands to a child on its standard input, as one line of JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct Errand {
    pub(crate) config: Config,
    pub(crate) process: u32,
    pub(crate) board: String,
}

/// The word on standard output by which a process says that it listens.
pub(crate) const READY: &str = "ready";

/// Runs this process as one of the node's, on the errand that stands on its standard input.
///
/// # Errors
/// What kept it from serving.
pub fn run_child() -> Result<(), NodeError> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|e| NodeError::Setup(e.to_string()))?;
    let errand: Errand = serde_json::from_str(&line).map_err(|e| NodeError::Setup(e.to_string()))?;
    // No process of the node outlives its supervisor.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    let board = Board::open(&errand.board, errand.config.processes)?;
    serve(&errand.config, errand.process, board, || {
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
    })
}

/// Serves until SIGTERM or SIGINT; calls `listening` once it can be connected to.
pub(crate) fn serve(
    config: &Config,
    process: u32,
    board: Board,
    listening: impl FnOnce(),
) -> Result<(), NodeError> {
    let setup = |e: &dyn std::fmt::Display| NodeError::Setup(e.to_string());
    let descriptors = reactor::descriptors::raise_limit();
    let board = Rc::new(board);
    let status = Rc::clone(&board);
    let service = Service::new("plimsoll", Box::new(move || status.open_metrics()));
    let mut reactor = Reactor::new(service, descriptors as usize).map_err(|e| setup(&e))?;
    reactor.unsent_limit = UNSENT_LIMIT;
    let (stop, stopped) = UnixStream::pair().map_err(|e| setup(&e))?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let end = stop.try_clone().map_err(|e| setup(&e))?;
        signal_hook::low_level::pipe::register(signal, end).map_err(|e| setup(&e))?;
    }
    reactor.watch(stopped.as_fd()).map_err(|e| setup(&e))?;
    for listen in &config.listen {
        let socket = socket::listen(listen.address, config.backlog, config.processes > 1)
            .map_err(|e| NodeError::Listen(listen.address, io::Error::from(e).to_string()))?;
        let tls = match &config.certificate {
            Some(certificate) if listen.scheme.is_tls() => Some(certificate.server_config(listen.scheme)?),
            _ => None,
        };
        reactor.listen(socket, tls).map_err(|e| setup(&e))?;
    }
    let mut keeper = Keeper { config, board, process: process as usize };
    listening();
    keep(&mut reactor, &mut keeper, descriptors)?;
    reactor.stop_listening();
    for index in 0..reactor.places() {
        reactor.close(index, &mut keeper, clock::now());
    }
    Ok(())
}

fn keep(
    reactor: &mut Reactor<Service, Note>,
    keeper: &mut Keeper<'_>,
    descriptors: u64,
) -> Result<(), NodeError> {
    let streams =
        keeper.config.listen.iter().any(|l| !matches!(l.scheme.plain(), Scheme::Tcp | Scheme::Grpc));
    let heartbeat = clock::from_seconds(keeper.config.heartbeat_seconds);
    let processes = keeper.config.processes;
    let mut walk =
        streams.then(|| Walk::new(clock::now(), heartbeat, descriptors, keeper.process as u32, processes));
    let mut look = Schedule::new(clock::now() + LOOK_EVERY, LOOK_EVERY as f64);
    loop {
        let until = look.due().min(walk.as_ref().map_or(Nanos::MAX, Walk::due));
        if reactor.turn(Some(until), keeper).map_err(|e| NodeError::Setup(e.to_string()))? {
            return Ok(());
        }
        let now = clock::now();
        if let Some(walk) = &mut walk {
            while let Some((first, stride, _)) = walk.take(now) {
                for index in (first..reactor.places()).step_by(stride) {
                    reactor.cue(index, Cue::Ask, keeper, now);
                }
            }
        }
        if look.take(now).is_some() {
            // One look makes up for any that were missed.
            while look.take(now).is_some() {}
            keeper.look_through(reactor, now);
        }
    }
}

/// What the node keeps of one connection beside its protocol.
#[derive(Default)]
pub(crate) struct Note {
    /// When the client was last heard, in seconds of the monotonic clock.
    heard: u32,
    /// Never read: it only has to be there.
    _ballast: Option<Box<[u8]>>,
}

struct Keeper<'a> {
    config: &'a Config,
    board: Rc<Board>,
    process: usize,
}

impl Keeper<'_> {
    fn add(&self, count: Count, n: u64) {
        self.board.at(self.process, count).fetch_add(n, Ordering::Relaxed);
    }

    fn look_through(&mut self, reactor: &mut Reactor<Service, Note>, now: Nanos) {
        self.board.at(self.process, Count::BytesIn).store(reactor.bytes_in, Ordering::Relaxed);
        self.board.at(self.process, Count::BytesOut).store(reactor.bytes_out, Ordering::Relaxed);
        let second = (now / clock::SECOND) as u32;
        let idle = self.config.idle_timeout_seconds.map(|s| s.ceil() as u32);
        let halfway = (HALFWAY / clock::SECOND) as u32;
        for index in 0..reactor.places() {
            let Some(note) = reactor.note(index) else { continue };
            let quiet = second.saturating_sub(note.heard);
            if idle.is_some_and(|idle| quiet >= idle) {
                self.add(Count::IdleClosed, 1);
                reactor.close(index, self, now);
            } else if quiet >= halfway && reactor.is_halfway(index) {
                reactor.close(index, self, now);
            }
        }
    }
}

impl Owner<Service, Note> for Keeper<'_> {
    fn received(&mut self, note: &mut Note, now: Nanos) {
        note.heard = (now / clock::SECOND) as u32;
    }

    fn fact(&mut self, _index: u32, _note: &mut Note, _fact: Fact, _now: Nanos) {}

    fn ended(&mut self, _index: u32, _note: &mut Note, end: End, _now: Nanos) {
        self.board.at(self.process, Count::Live).fetch_sub(1, Ordering::Relaxed);
        if matches!(end, End::Failed(_)) {
            self.add(Count::Failed, 1);
        }
    }

    fn accepted(&mut self, listener: usize, now: Nanos) -> Option<(Slot, Note)> {
        let scheme = self.config.listen[listener].scheme.plain();
        self.add(Count::Accepted, 1);
        let full = self.config.max_connections.is_some_and(|most| self.board.total(Count::Live) >= most);
        if full {
            self.add(Count::TurnedAway, 1);
            if scheme == Scheme::Tcp {
                return None;
            }
        }
        self.add(Count::Live, 1);
        let bytes = self.config.ballast_bytes.saturating_sub(ALLOCATOR_HEADER) as usize;
        let note = Note {
            heard: (now / clock::SECOND) as u32,
            // Written, not zeroed: untouched pages would cost nothing.
            _ballast: (bytes > 0 && !full).then(|| vec![0xB5; bytes].into_boxed_slice()),
        };
        let slot = match (scheme, full) {
            (Scheme::Grpc, true) => Slot::refusing_grpc(),
            (Scheme::Grpc, false) => Slot::grpc(),
            (_, true) => Slot::refusing(),
            (Scheme::Tcp, false) => Slot::echo(),
            (_, false) => Slot::http(),
        };
        Some((slot, note))
    }

    fn accept_failed(&mut self, _errno: Errno) {
        self.add(Count::AcceptFailures, 1);
    }
}

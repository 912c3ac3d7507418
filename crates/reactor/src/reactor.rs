//! How are all connections of one process driven by one thread?
//!
//! Edge-triggered: each socket is registered once for its whole life. All connections share one read buffer
//! and one write buffer; a connection owns memory only while a partial message or an unsent byte waits.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use model::{Failure, FailureKind};
use protocols::{Cue, Fact, Machine, Out, quote};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, sockopt};
use rustls::ServerConfig;

use crate::clock::{self, Nanos};
use crate::conn::{Conn, End, State};
use crate::socket::{self, Source};
use crate::tls::{ClientTls, Tls};

/// Events taken from the kernel at a time: enough to amortise the call, few enough to keep the schedule.
const BATCH: usize = 256;
/// Free room offered to each read.
const READ_ROOM: usize = 64 * 1024;
/// Connections taken from a listener at a time, so that accepting never starves those accepted.
const ACCEPT_BATCH: usize = 64;
/// How long a listener rests when no descriptor is left to accept with.
const ACCEPT_REST: Nanos = 50 * clock::MILLISECOND;
/// Of a peer's last words, so many bytes are kept.
const MOST_WORDS: usize = 120;
/// Marks an event as a listener's.
const LISTENER: u64 = 1 << 63;
/// The event of a descriptor that is only watched.
const WATCHED: u64 = u64::MAX;

/// Whoever runs the reactor: an experiment, or the node. Called from within [`Reactor::turn`] and
/// [`Reactor::cue`], on the reactor's thread; must not block.
pub trait Owner<M: Machine, N> {
    /// TCP stands.
    fn opened(&mut self, _index: u32, _note: &mut N, _now: Nanos) {}
    /// TLS stands.
    fn secured(&mut self, _index: u32, _note: &mut N, _now: Nanos) {}
    /// Bytes came.
    fn received(&mut self, _note: &mut N, _now: Nanos) {}
    /// The machine reported something.
    fn fact(&mut self, index: u32, note: &mut N, fact: Fact, now: Nanos);
    /// The connection is gone; its place in the slab will be used again.
    fn ended(&mut self, index: u32, note: &mut N, end: End, now: Nanos);
    /// A connection waits at a listener: with what slot and note is it taken? `None`: it is closed at once.
    fn accepted(&mut self, _listener: usize, _now: Nanos) -> Option<(M::Slot, N)> {
        None
    }
    /// `accept()` failed for want of something (`EMFILE`, `ENFILE`, `ENOMEM`); the listener rests a while.
    fn accept_failed(&mut self, _errno: Errno) {}
}

struct Listener {
    socket: OwnedFd,
    tls: Option<Arc<ServerConfig>>,
    resting_until: Option<Nanos>,
}

/// All connections of one process.
pub struct Reactor<M: Machine, N> {
    machine: M,
    epoll: OwnedFd,
    conns: Vec<Conn<M::Slot, N>>,
    free: Vec<u32>,
    listeners: Vec<Listener>,
    events: Vec<Event>,
    input: Vec<u8>,
    plain: Vec<u8>,
    wire: Vec<u8>,
    out: Out,
    facts: Vec<Fact>,
    /// What a client's stream is secured with when its machine asks for that in mid-stream.
    pub tls_on_request: Option<ClientTls>,
    /// Most bytes that may wait unsent on one connection before it is given up as a slow reader.
    pub unsent_limit: usize,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
}

impl<M: Machine, N: Default> Reactor<M, N> {
    /// Makes a reactor with room for `capacity` connections (address space only, until they are used).
    ///
    /// # Errors
    /// What `epoll_create1(2)` says.
    pub fn new(machine: M, capacity: usize) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            machine,
            epoll,
            conns: Vec::with_capacity(capacity),
            free: Vec::new(),
            listeners: Vec::new(),
            events: Vec::with_capacity(BATCH),
            input: vec![0; READ_ROOM],
            plain: Vec::new(),
            wire: Vec::new(),
            out: Out::default(),
            facts: Vec::new(),
            tls_on_request: None,
            unsent_limit: usize::MAX,
            bytes_in: 0,
            bytes_out: 0,
        })
    }

    /// Starts one connection; the owner hears of it by its index.
    ///
    /// # Errors
    /// The failure that `connect()` or the registration met at once.
    pub fn connect(
        &mut self,
        to: SocketAddr,
        from: Source,
        tls: Option<&ClientTls>,
        note: N,
    ) -> Result<u32, Errno> {
        let socket = socket::connect(to, from)?;
        let tls = match tls {
            Some(with) => Some(Box::new(Tls::client(with).map_err(|_| Errno::INVAL)?)),
            None => None,
        };
        self.adopt(socket, State::Connecting, tls, M::Slot::default(), note)
    }

    /// Adds a listening socket; the owner hears of its connections under the returned number.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` says.
    pub fn listen(&mut self, socket: OwnedFd, tls: Option<Arc<ServerConfig>>) -> Result<usize, Errno> {
        let number = self.listeners.len();
        epoll::add(&self.epoll, &socket, EventData::new_u64(LISTENER | number as u64), EventFlags::IN)?;
        self.listeners.push(Listener { socket, tls, resting_until: None });
        Ok(number)
    }

    /// Lets [`Reactor::turn`] end early, and say so, when this descriptor becomes readable.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` says.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, EventData::new_u64(WATCHED), EventFlags::IN)
    }

    /// Stops listening; connections already accepted stay.
    pub fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// How many places the slab has, taken or free: the range of indices.
    pub fn places(&self) -> u32 {
        self.conns.len() as u32
    }

    /// How many connections there are, those still connecting included.
    pub fn live(&self) -> usize {
        self.conns.len() - self.free.len()
    }

    /// The owner's note on a connection; `None` if the place is free.
    pub fn note(&mut self, index: u32) -> Option<&mut N> {
        self.conns.get_mut(index as usize).filter(|c| c.socket.is_some()).map(|c| &mut c.note)
    }

    /// Whether a connection has begun something and not finished it: a handshake, a request, a frame.
    pub fn is_halfway(&self, index: u32) -> bool {
        self.conns.get(index as usize).is_some_and(|c| {
            c.socket.is_some()
                && (c.state == State::Securing
                    || c.waiting.as_ref().is_some_and(|w| !w.partial.is_empty() || !w.sealed.is_empty()))
        })
    }

    /// Which tenant holds the place now, for telling a connection from its successor.
    pub fn tenancy(&self, index: u32) -> u32 {
        self.conns[index as usize].tenancy
    }

    /// The machine that all connections share.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Gives a cue to an open connection; does nothing on one that is not open.
    pub fn cue<O: Owner<M, N>>(&mut self, index: u32, cue: Cue<'_>, owner: &mut O, now: Nanos) {
        let Some(conn) = self.conns.get_mut(index as usize) else { return };
        if conn.socket.is_none() || conn.state != State::Open {
            return;
        }
        let done = self.machine.on(&mut conn.slot, cue, &mut self.out);
        self.conclude(index, done.map(|_| ()), owner, now);
    }

    /// Closes a connection after its good-bye, if the protocol has one; what the peer does not take at once is not
    /// waited for.
    pub fn close<O: Owner<M, N>>(&mut self, index: u32, owner: &mut O, now: Nanos) {
        self.cue(index, Cue::Finish, owner, now);
        if self.conns.get(index as usize).is_some_and(|c| c.socket.is_some()) {
            self.end(index, End::Done, owner, now);
        }
    }

    /// Drops a connection with a reset: no good-bye, and no port that stays in TIME-WAIT.
    pub fn abort<O: Owner<M, N>>(&mut self, index: u32, owner: &mut O, now: Nanos) {
        let Some(conn) = self.conns.get(index as usize) else { return };
        let Some(socket) = &conn.socket else { return };
        let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        self.end(index, End::Done, owner, now);
    }

    /// Ends a connection with a failure that only the owner can know of (a time-out).
    pub fn fail<O: Owner<M, N>>(&mut self, index: u32, failure: Failure, owner: &mut O, now: Nanos) {
        if self.conns.get(index as usize).is_some_and(|c| c.socket.is_some()) {
            self.end(index, End::Failed(failure), owner, now);
        }
    }

    /// Waits for events until `until` at the longest (`None`: for ever) and handles them. Says whether a watched
    /// descriptor is readable.
    ///
    /// # Errors
    /// What `epoll_wait(2)` says; a signal is not an error.
    pub fn turn<O: Owner<M, N>>(&mut self, until: Option<Nanos>, owner: &mut O) -> Result<bool, Errno> {
        let until =
            [until, self.listeners.iter().filter_map(|l| l.resting_until).min()].into_iter().flatten().min();
        let timeout = until.map(|at| {
            let left = at.saturating_sub(clock::now());
            Timespec { tv_sec: (left / clock::SECOND) as i64, tv_nsec: (left % clock::SECOND) as i64 }
        });
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        match waited {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut watched = false;
        for event in &events {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == WATCHED {
                watched = true;
            } else if data & LISTENER != 0 {
                self.accept((data & !LISTENER) as usize, owner);
            } else {
                self.event(data as u32, (data >> 32) as u32, flags, owner);
            }
        }
        self.events = events;
        self.wake_listeners();
        Ok(watched)
    }

    fn adopt(
        &mut self,
        socket: OwnedFd,
        state: State,
        tls: Option<Box<Tls>>,
        slot: M::Slot,
        note: N,
    ) -> Result<u32, Errno> {
        let index = self.free.last().copied().unwrap_or(self.conns.len() as u32);
        let tenancy =
            self.conns.get(index as usize).map_or(0, |c| c.tenancy.wrapping_add(1) & (u32::MAX >> 1));
        let data = EventData::new_u64(u64::from(tenancy) << 32 | u64::from(index));
        epoll::add(
            &self.epoll,
            &socket,
            data,
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        )?;
        let conn = Conn { socket: Some(socket), tenancy, state, tls, waiting: None, slot, note };
        if self.free.pop().is_some() {
            self.conns[index as usize] = conn;
        } else {
            self.conns.push(conn);
        }
        Ok(index)
    }

    fn accept<O: Owner<M, N>>(&mut self, number: usize, owner: &mut O) {
        for _ in 0..ACCEPT_BATCH {
            let Some(listener) = self.listeners.get_mut(number) else { return };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match rustix::net::accept_with(&listener.socket, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    // The listener stays readable; asking at once again would spin.
                    owner.accept_failed(errno);
                    listener.resting_until = Some(clock::now() + ACCEPT_REST);
                    let data = EventData::new_u64(LISTENER | number as u64);
                    let _ = epoll::modify(&self.epoll, &listener.socket, data, EventFlags::empty());
                    return;
                }
                // The peer gave up while it waited.
                Err(_) => continue,
            };
            let now = clock::now();
            let tls = match &listener.tls {
                Some(config) => match Tls::server(config) {
                    Ok(tls) => Some(Box::new(tls)),
                    Err(_) => continue,
                },
                None => None,
            };
            let Some((slot, note)) = owner.accepted(number, now) else { continue };
            let state = if tls.is_some() { State::Securing } else { State::Open };
            match self.adopt(socket, state, tls, slot, note) {
                Ok(index) if state == State::Open => self.cue(index, Cue::Connected, owner, now),
                Ok(_) => {}
                Err(errno) => owner.accept_failed(errno),
            }
        }
    }

    fn wake_listeners(&mut self) {
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            if listener.resting_until.is_some_and(|until| clock::now() >= until) {
                listener.resting_until = None;
                let data = EventData::new_u64(LISTENER | number as u64);
                let _ = epoll::modify(&self.epoll, &listener.socket, data, EventFlags::IN);
            }
        }
    }

    fn event<O: Owner<M, N>>(&mut self, index: u32, tenancy: u32, flags: EventFlags, owner: &mut O) {
        let now = clock::now();
        let Some(conn) = self.conns.get_mut(index as usize) else { return };
        if conn.tenancy != tenancy {
            return;
        }
        let Some(socket) = &conn.socket else { return };
        if conn.state == State::Connecting {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                let errno = match sockopt::socket_error(socket) {
                    Ok(Err(errno)) | Err(errno) => errno,
                    Ok(Ok(())) => Errno::CONNRESET,
                };
                return self.end(index, End::Failed(socket::failure(errno)), owner, now);
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            owner.opened(index, &mut conn.note, now);
            if conn.tls.is_some() {
                conn.state = State::Securing;
                self.feed_tls(index, 0, owner, now);
            } else {
                conn.state = State::Open;
                self.cue(index, Cue::Connected, owner, now);
            }
        } else if flags.contains(EventFlags::OUT) && conn.has_unsent() {
            self.flush(index, owner, now);
        }
        let over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if over || flags.contains(EventFlags::IN) {
            self.read(index, over, owner, now);
        }
    }

    /// Reads until the socket is empty; to its very end if the peer is known to be `over`.
    fn read<O: Owner<M, N>>(&mut self, index: u32, over: bool, owner: &mut O, now: Nanos) {
        // What is still in the read buffer, in clear text, when the peer turns out to have closed.
        let mut said = 0;
        loop {
            let Some(conn) = self.conns.get_mut(index as usize) else { return };
            let Some(socket) = &conn.socket else { return };
            // Whoever does not take our answers is not read from either, until they do (see `flush`).
            if conn.has_unsent() && !over {
                return;
            }
            let before = match (&mut conn.waiting, &conn.tls) {
                (Some(waiting), Some(_)) => &mut waiting.sealed,
                (Some(waiting), None) => &mut waiting.partial,
                (None, _) => &mut Vec::new(),
            };
            let start = before.len();
            self.input.resize(start + READ_ROOM, 0);
            self.input[..start].copy_from_slice(before);
            before.clear();
            let got = match rustix::io::read(socket, &mut self.input[start..]) {
                Ok(0) => {
                    let words = &self.input[..said];
                    let words = if said > 0 { quote(words, MOST_WORDS) } else { String::new() };
                    return self.end(index, End::PeerClosed(words), owner, now);
                }
                Ok(got) => got,
                Err(Errno::AGAIN | Errno::INTR) => {
                    if start > 0 {
                        before.extend_from_slice(&self.input[..start]);
                    }
                    return;
                }
                Err(errno) => return self.end(index, End::Failed(socket::failure(errno)), owner, now),
            };
            self.bytes_in += got as u64;
            owner.received(&mut conn.note, now);
            if conn.tls.is_some() {
                self.feed_tls(index, start + got, owner, now);
            } else {
                self.feed(index, start + got, owner, now);
                said = start + got;
            }
            if got < READ_ROOM && !over {
                return;
            }
        }
    }

    /// Hands the first `n` bytes of the read buffer to TLS, and what they unseal to the machine.
    fn feed_tls<O: Owner<M, N>>(&mut self, index: u32, n: usize, owner: &mut O, now: Nanos) {
        let Some(conn) = self.conns.get_mut(index as usize) else { return };
        let Some(tls) = &mut conn.tls else { return };
        self.plain.clear();
        if let Some(waiting) = &mut conn.waiting {
            self.plain.append(&mut waiting.partial);
        }
        let fed = tls.feed(&mut self.input[..n], &mut self.plain, &mut self.wire);
        match &fed {
            Ok(fed) if fed.consumed < n => {
                conn.waiting().sealed.extend_from_slice(&self.input[fed.consumed..n]);
            }
            _ => conn.settle(),
        }
        let newly_open = conn.state == State::Securing && fed.as_ref().is_ok_and(|f| f.open);
        self.send_wire(index, owner, now);
        let Some(conn) = self.conns.get_mut(index as usize).filter(|c| c.socket.is_some()) else { return };
        let fed = match fed {
            Ok(fed) => fed,
            Err(failure) => return self.end(index, End::Failed(failure), owner, now),
        };
        if newly_open {
            conn.state = State::Open;
            owner.secured(index, &mut conn.note, now);
            self.cue(index, Cue::Connected, owner, now);
        }
        if !self.plain.is_empty() {
            let plain = std::mem::take(&mut self.plain);
            self.hand_over(index, &plain, owner, now);
            self.plain = plain;
        }
        if fed.peer_closed {
            self.end(index, End::PeerClosed(String::new()), owner, now);
        }
    }

    /// Hands the first `n` bytes of the read buffer to the machine.
    fn feed<O: Owner<M, N>>(&mut self, index: u32, n: usize, owner: &mut O, now: Nanos) {
        let input = std::mem::take(&mut self.input);
        self.hand_over(index, &input[..n], owner, now);
        self.input = input;
    }

    fn hand_over<O: Owner<M, N>>(&mut self, index: u32, bytes: &[u8], owner: &mut O, now: Nanos) {
        let Some(conn) = self.conns.get_mut(index as usize).filter(|c| c.socket.is_some()) else { return };
        if conn.state != State::Open {
            return;
        }
        let done = self.machine.on(&mut conn.slot, Cue::Bytes(bytes), &mut self.out);
        let done = done.map(|consumed| {
            if consumed < bytes.len() {
                conn.waiting().partial.extend_from_slice(&bytes[consumed..]);
            } else {
                conn.settle();
            }
        });
        self.conclude(index, done, owner, now);
    }

    /// After the machine has spoken: reports its facts, sends its bytes, and ends what it ended.
    fn conclude<O: Owner<M, N>>(&mut self, index: u32, done: Result<(), Failure>, owner: &mut O, now: Nanos) {
        let mut facts = std::mem::replace(&mut self.out.facts, std::mem::take(&mut self.facts));
        let conn = &mut self.conns[index as usize];
        let mut closing = false;
        let mut securing = false;
        for &fact in &facts {
            closing |= fact == Fact::Done;
            securing |= fact == Fact::StartTls;
            owner.fact(index, &mut conn.note, fact, now);
        }
        facts.clear();
        self.facts = facts;
        if closing {
            conn.state = State::Closing;
        }
        let mut sealed = Ok(());
        if !self.out.bytes.is_empty() || (closing && conn.tls.is_some()) {
            match &mut conn.tls {
                Some(tls) => {
                    sealed = tls.seal(&self.out.bytes, &mut self.wire);
                    if closing {
                        tls.close(&mut self.wire);
                    }
                    self.out.bytes.clear();
                }
                None => std::mem::swap(&mut self.wire, &mut self.out.bytes),
            }
            self.send_wire(index, owner, now);
        }
        match done.and(sealed) {
            Err(failure) => self.fail(index, failure, owner, now),
            Ok(()) => {
                let conn = &self.conns[index as usize];
                if conn.socket.is_none() {
                    return;
                }
                if closing && !conn.has_unsent() {
                    self.end(index, End::Done, owner, now);
                } else if securing {
                    self.secure(index, owner, now);
                }
            }
        }
    }

    /// Begins TLS on a stream that stands.
    fn secure<O: Owner<M, N>>(&mut self, index: u32, owner: &mut O, now: Nanos) {
        let conn = &mut self.conns[index as usize];
        // Whoever sits in between could have put it there, to be taken for a part of what is then secured.
        if conn.waiting.as_ref().is_some_and(|w| !w.partial.is_empty()) {
            let text =
                "the server sent bytes in clear behind its agreement to TLS; somebody may sit in between";
            return self.fail(index, Failure::new(FailureKind::Protocol, text), owner, now);
        }
        let Some(Ok(tls)) = self.tls_on_request.as_ref().map(Tls::client) else {
            let text =
                "the server asks for TLS, and nobody is trusted here; name an authority with --ca FILE";
            return self.fail(index, Failure::new(FailureKind::Tls, text), owner, now);
        };
        conn.tls = Some(Box::new(tls));
        conn.state = State::Securing;
        self.feed_tls(index, 0, owner, now);
    }

    /// Sends what stands in the write buffer; keeps for the connection what the socket does not take.
    fn send_wire<O: Owner<M, N>>(&mut self, index: u32, owner: &mut O, now: Nanos) {
        if self.wire.is_empty() {
            return;
        }
        let conn = &mut self.conns[index as usize];
        let Some(socket) = &conn.socket else { return self.wire.clear() };
        let mut sent = 0;
        let mut error = None;
        if !conn.has_unsent() {
            match send(socket, &self.wire) {
                Ok(n) => sent = n,
                Err(errno) => error = Some(errno),
            }
        }
        self.bytes_out += sent as u64;
        if let Some(errno) = error {
            self.wire.clear();
            return self.end(index, End::Failed(socket::failure(errno)), owner, now);
        }
        if sent < self.wire.len() {
            let rest = &self.wire[sent..];
            conn.waiting().unsent.extend_from_slice(rest);
            if conn.waiting().unsent.len() > self.unsent_limit {
                let text =
                    format!("more than {} bytes wait for a peer that does not read", self.unsent_limit);
                self.wire.clear();
                return self.end(index, End::Failed(Failure::new(FailureKind::Silent, text)), owner, now);
            }
        }
        self.wire.clear();
    }

    /// The socket takes more: sends what waits, and reads on if that was held back.
    fn flush<O: Owner<M, N>>(&mut self, index: u32, owner: &mut O, now: Nanos) {
        let conn = &mut self.conns[index as usize];
        let (Some(socket), Some(waiting)) = (&conn.socket, &mut conn.waiting) else { return };
        match send(socket, &waiting.unsent) {
            Ok(sent) => {
                self.bytes_out += sent as u64;
                waiting.unsent.drain(..sent);
                if waiting.unsent.is_empty() {
                    waiting.unsent = Vec::new();
                    conn.settle();
                    if conn.state == State::Closing {
                        self.end(index, End::Done, owner, now);
                    } else {
                        self.read(index, false, owner, now);
                    }
                }
            }
            Err(errno) => self.end(index, End::Failed(socket::failure(errno)), owner, now),
        }
    }

    fn end<O: Owner<M, N>>(&mut self, index: u32, end: End, owner: &mut O, now: Nanos) {
        let conn = &mut self.conns[index as usize];
        conn.socket = None;
        conn.tls = None;
        conn.waiting = None;
        conn.slot = M::Slot::default();
        let mut note = std::mem::take(&mut conn.note);
        self.free.push(index);
        owner.ended(index, &mut note, end, now);
    }
}

/// Sends what the socket takes now; a full socket takes nothing, which is no error.
fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sent)
}

//! What is the least that a client does? Connects its share, and sends one message round over each.

use std::io::{BufRead, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::plan::{MESSAGE, PATIENCE_SECONDS, Plan};
use crate::sys;

/// Connections that may be on their way at a time.
const UNDERWAY: usize = 1024;
/// Connections opened between two looks at what has become of them.
const OPENS: usize = 64;
/// Round trips that are started, and waited for, together.
const BATCH: usize = 256;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Greeting,
    Established,
}

/// Follows the orders that come on stdin, a line each: `establish`, `verify`, `quit`. Each is answered by a line
/// when it is done.
pub(crate) fn run(plan: &Plan, port: u16, number: u64) -> Result<(), String> {
    let fail = |what: &str, e: std::io::Error| format!("client {number}: failed to {what}: {e}");
    sys::raise_nofile().map_err(|e| fail("raise the descriptor limit", e))?;
    let mut client = Client::new(plan, port, number).map_err(|e| fail("start", e.into()))?;
    for order in std::io::stdin().lock().lines() {
        match order.map_err(|e| fail("read an order", e))?.as_str() {
            "establish" => client.establish().map_err(|e| fail("establish", e.into()))?,
            "verify" => client.verify().map_err(|e| fail("verify", e.into()))?,
            _ => break,
        }
        writeln!(std::io::stdout(), "done").map_err(|e| fail("answer", e))?;
    }
    Ok(())
}

struct Client<'a> {
    plan: &'a Plan,
    server: SocketAddrV4,
    first: u64,
    share: usize,
    epoll: OwnedFd,
    connections: Vec<OwnedFd>,
    states: Vec<State>,
    deadline: f64,
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan, port: u16, number: u64) -> Result<Self, Errno> {
        let share = plan.share(number);
        let n = share.clone().count();
        Ok(Self {
            plan,
            server: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            first: share.start,
            share: n,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(n),
            states: vec![State::Connecting; n],
            deadline: sys::now() + PATIENCE_SECONDS,
        })
    }

    /// Starts one connection and has it watched. Edge-triggered: one event says that it is up, one more that the
    /// answer is there, and nothing has to be changed in between.
    fn open(&mut self) -> Result<(), Errno> {
        let index = self.connections.len() as u64;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sys::bind_without_port(&socket).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::INVAL))?;
        bind(&socket, &SocketAddrV4::new(self.plan.source(self.first + index), 0))?;
        match connect(&socket, &self.server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(e) => return Err(e),
        }
        let what = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(index), what)?;
        self.connections.push(socket);
        Ok(())
    }

    /// Connects the share; with a greeting, until each greeting was answered.
    fn establish(&mut self) -> Result<(), Errno> {
        let mut events = [MaybeUninit::uninit(); 512];
        let mut buffer = [0u8; 4096];
        let greeting = self.plan.mode.greeting();
        let mut established = 0;
        while established < self.share {
            let mut opens = 0;
            while opens < OPENS
                && self.connections.len() < self.share
                && self.connections.len() - established < UNDERWAY
            {
                self.open()?;
                opens += 1;
            }
            let patience = if opens == 0 { self.tick()? } else { Timespec::default() };
            let events = wait(&self.epoll, &mut events, &patience)?;
            for event in events {
                let (index, flags) = (event.data.u64() as usize, event.flags);
                let connection = &self.connections[index];
                if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                    return Err(Errno::CONNRESET);
                }
                let state = &mut self.states[index];
                match (*state, greeting) {
                    (State::Connecting, None) => {
                        *state = State::Established;
                        established += 1;
                    }
                    (State::Connecting, Some((request, _))) => {
                        write(connection, request)?;
                        *state = State::Greeting;
                    }
                    (State::Greeting, _) if flags.contains(EventFlags::IN) => {
                        let n = read(connection, &mut buffer)?;
                        if buffer[..n].ends_with(b"\r\n\r\n") {
                            *state = State::Established;
                            established += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sends one message over every connection and waits until each has come back.
    fn verify(&mut self) -> Result<(), Errno> {
        let mut events = [MaybeUninit::uninit(); 512];
        let mut buffer = [0u8; 4096];
        let mut message = [b'.'; MESSAGE];
        for start in (0..self.share).step_by(BATCH) {
            let end = (start + BATCH).min(self.share);
            for index in start..end {
                message[..8].copy_from_slice(&(index as u64).to_le_bytes());
                write(&self.connections[index], &message)?;
            }
            let mut answered = 0;
            while answered < end - start {
                let patience = self.tick()?;
                let events = wait(&self.epoll, &mut events, &patience)?;
                for event in events {
                    let (index, flags) = (event.data.u64(), event.flags);
                    if !flags.contains(EventFlags::IN) {
                        continue;
                    }
                    let n = read(&self.connections[index as usize], &mut buffer)?;
                    if n != MESSAGE || buffer[..8] != index.to_le_bytes() {
                        return Err(Errno::PROTO);
                    }
                    answered += 1;
                }
            }
        }
        Ok(())
    }

    /// How long to wait before looking at the clock again.
    fn tick(&self) -> Result<Timespec, Errno> {
        if sys::now() > self.deadline { Err(Errno::TIMEDOUT) } else { Ok(Timespec { tv_sec: 1, tv_nsec: 0 }) }
    }
}

/// Waits for events; none if a signal came in between.
fn wait<'e>(
    epoll: &OwnedFd,
    events: &'e mut [MaybeUninit<epoll::Event>],
    patience: &Timespec,
) -> Result<&'e [epoll::Event], Errno> {
    match epoll::wait(epoll, events, Some(patience)) {
        Ok((events, _)) => Ok(events),
        Err(Errno::INTR) => Ok(&[]),
        Err(e) => Err(e),
    }
}

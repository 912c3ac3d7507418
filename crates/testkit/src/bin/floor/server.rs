//! What is the least that a server does? Accepts everything, and sends back what it reads.

use std::io::Write;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, listen, socket_with, sockopt};

use crate::plan::Plan;
use crate::sys;

const LISTENER: u64 = u64::MAX;
const ORDERS: u64 = u64::MAX - 1;
/// The queue of connections that are established but not yet accepted; the kernel lowers it to its own ceiling.
const BACKLOG: i32 = 65_535;
/// Connections accepted in one go before the others have their turn.
const ACCEPTS: usize = 512;

/// Serves until told to quit. Orders, a byte each: `c`: say how many were accepted; `q`, or the parent gone: quit.
pub(crate) fn run(plan: &Plan, port: u16) -> Result<(), String> {
    serve(plan, port).map_err(|e| format!("server on port {port}: {e}"))
}

fn serve(plan: &Plan, port: u16) -> Result<(), Errno> {
    sys::raise_nofile().map_err(|_| Errno::PERM)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseport(&listener, true)?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listen(&listener, BACKLOG)?;

    let stdin = std::io::stdin();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    epoll::add(&epoll, stdin.as_fd(), EventData::new_u64(ORDERS), EventFlags::IN)?;
    say("ready")?;

    let greeting = plan.mode.greeting();
    let mut connections: Vec<OwnedFd> = Vec::with_capacity(2 * plan.share(0).count() + 64);
    let mut events = [MaybeUninit::uninit(); 512];
    let mut buffer = [0u8; 4096];
    loop {
        let (events, _) = match epoll::wait(&epoll, &mut events, None) {
            Err(Errno::INTR) => continue,
            waited => waited?,
        };
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => {
                    for _ in 0..ACCEPTS {
                        let connection = match accept_with(&listener, flags) {
                            Ok(connection) => connection,
                            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => break,
                            Err(e) => return Err(e),
                        };
                        let data = EventData::new_u64(connections.len() as u64);
                        epoll::add(&epoll, &connection, data, EventFlags::IN)?;
                        connections.push(connection);
                    }
                }
                ORDERS => match read(stdin.as_fd(), &mut buffer[..1])? {
                    1 if buffer[0] == b'c' => say(&format!("{}", connections.len()))?,
                    _ => return quit(&connections),
                },
                index => {
                    let connection = &connections[index as usize];
                    match read(connection, &mut buffer) {
                        Ok(0) => epoll::delete(&epoll, connection)?,
                        Ok(n) => match greeting {
                            Some((_, answer)) if buffer[..n].ends_with(b"\r\n\r\n") => {
                                write(connection, answer)?;
                            }
                            _ => {
                                write(connection, &buffer[..n])?;
                            }
                        },
                        Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(_) => epoll::delete(&epoll, connection)?,
                    }
                }
            }
        }
    }
}

/// Resets every connection, so that no run leaves its ports waiting for the next one.
fn quit(connections: &[OwnedFd]) -> Result<(), Errno> {
    for connection in connections {
        sockopt::set_socket_linger(connection, Some(Duration::ZERO))?;
    }
    Ok(())
}

fn say(word: &str) -> Result<(), Errno> {
    writeln!(std::io::stdout(), "{word}").map_err(|_| Errno::PIPE)
}

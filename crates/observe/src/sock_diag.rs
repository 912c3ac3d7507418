//! Which sockets listen on a port, and how full are their queues? Asked over netlink (sock_diag(7)).
//!
//! The kernel filters by state and port, so the answer costs what there are listeners, never what there are
//! connections (reading `/proc/net/tcp` would). The messages are of fixed size; both ways are written out
//! here, field by field, as in `linux/inet_diag.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::reader::Error;

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// An IPv6 socket that takes no IPv4 connections.
    pub(crate) v6_only: bool,
    /// What `/proc/PID/fd` links name: `socket:[inode]`.
    pub(crate) inode: u64,
    /// Connections that wait to be accepted (`idiag_rqueue`).
    pub(crate) queued: u32,
    /// The most that may wait (`idiag_wqueue`).
    pub(crate) backlog: u32,
}

const REQUEST_BYTES: usize = 72;
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES: usize = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const STATE_LISTEN: u8 = 10;
const INET_DIAG_SKV6ONLY: u16 = 11;

/// The sockets that listen on a port in this network namespace, IPv4 and IPv6.
pub(crate) fn listening(port: u16) -> Result<Vec<Listening>, Error> {
    let mut found = vec![];
    for family in [AddressFamily::INET, AddressFamily::INET6] {
        match ask(family, port, &mut found) {
            // A kernel without IPv6 has nothing to answer with.
            Err(Errno::NOENT) if family == AddressFamily::INET6 => {}
            Err(errno) => return Err(Error::SockDiag(errno.into())),
            Ok(()) => {}
        }
    }
    Ok(found)
}

fn ask(family: AddressFamily, port: u16, found: &mut Vec<Listening>) -> Result<(), Errno> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    // The kernel answers at once; this is for sandboxes that pretend to be one.
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1)))?;
    send(&socket, &request(family, port), SendFlags::empty())?;
    let mut buffer = vec![0; 32 * 1024];
    loop {
        let (length, _) = match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        match parse(&buffer[..length], found) {
            Ok(true) => return Ok(()),
            Ok(false) if length > 0 => {}
            Ok(false) => return Err(Errno::BADMSG),
            Err(errno) => return Err(errno),
        }
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`: dump TCP sockets in LISTEN on the port.
fn request(family: AddressFamily, port: u16) -> [u8; REQUEST_BYTES] {
    let mut message = [0; REQUEST_BYTES];
    let mut put = |at: usize, bytes: &[u8]| message[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &72u32.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST_DUMP.to_ne_bytes());
    put(16, &[family.as_raw().to_ne_bytes()[usize::from(cfg!(target_endian = "big"))]]);
    put(17, &[6]); // IPPROTO_TCP
    put(20, &(1u32 << STATE_LISTEN).to_ne_bytes());
    put(24, &port.to_be_bytes());
    put(64, &[0xff; 8]); // no cookie: any socket
    message
}

/// Parses one datagram of an answer; `true` when it was the last.
fn parse(mut datagram: &[u8], found: &mut Vec<Listening>) -> Result<bool, Errno> {
    while let Some(length) = u32_at(datagram, 0) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length < HEADER_BYTES || length > datagram.len() {
            return Err(Errno::BADMSG);
        }
        let body = &datagram[HEADER_BYTES..length];
        match u16_at(datagram, 4) {
            // Both carry a negative errno, or 0; a DONE of old kernels carries nothing.
            Some(kind @ (NLMSG_DONE | NLMSG_ERROR)) => {
                return match u32_at(body, 0).map_or(0, |code| i32::from_ne_bytes(code.to_ne_bytes())) {
                    0 => Ok(true),
                    // Only errors that the kernel can mean; rustix takes no others.
                    code @ -4095..=-1 => Err(Errno::from_raw_os_error(-code)),
                    _ if kind == NLMSG_DONE => Ok(true),
                    _ => Err(Errno::BADMSG),
                };
            }
            Some(SOCK_DIAG_BY_FAMILY) => found.push(answer(body).ok_or(Errno::BADMSG)?),
            _ => {}
        }
        // Messages start at multiples of four.
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct inet_diag_msg` and its attributes.
fn answer(body: &[u8]) -> Option<Listening> {
    if body.len() < ANSWER_BYTES {
        return None;
    }
    let address = match AddressFamily::from_raw(u16::from(body[0])) {
        AddressFamily::INET => IpAddr::from(<[u8; 4]>::try_from(&body[8..12]).ok().map(Ipv4Addr::from)?),
        AddressFamily::INET6 => IpAddr::from(<[u8; 16]>::try_from(&body[8..24]).ok().map(Ipv6Addr::from)?),
        _ => return None,
    };
    Some(Listening {
        address,
        port: u16::from_be_bytes([body[4], body[5]]),
        v6_only: attribute(&body[ANSWER_BYTES..], INET_DIAG_SKV6ONLY).is_some_and(|v| v.first() == Some(&1)),
        inode: u64::from(u32_at(body, 68)?),
        queued: u32_at(body, 56)?,
        backlog: u32_at(body, 60)?,
    })
}

/// The value of an attribute (`struct rtattr`): length with header, kind, value, padding to four.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        if length < 4 {
            return None;
        }
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Whether an address is one of this machine's: only those can be bound to (ip(7)).
pub(crate) fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || std::net::UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_filters_by_state_and_port() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let clients: Vec<_> = (0..50).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        let accepted: Vec<_> = (0..40).map(|_| server.accept().unwrap()).collect();
        // Nothing is filtered here: all that comes over the wire is found. 100 more sockets have this port at
        // one of their ends, and other tests listen on other ports.
        let mut found = vec![];
        ask(AddressFamily::INET, port, &mut found).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].address, "127.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!((found[0].port, found[0].queued), (port, 10));
        assert_eq!(listening(port).unwrap(), found);
        drop((clients, accepted));
    }

    #[test]
    fn ipv6_and_its_v6only_flag() {
        let Ok(server) = TcpListener::bind("[::]:0") else { return };
        let found = listening(server.local_addr().unwrap().port()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].address, "::".parse::<IpAddr>().unwrap());
        assert!(!found[0].v6_only);
        // The kernel marks those that are bound to one address.
        let server = TcpListener::bind("[::1]:0").unwrap();
        assert!(listening(server.local_addr().unwrap().port()).unwrap()[0].v6_only);
    }

    #[test]
    fn own_addresses_and_others() {
        assert!(is_local("127.3.2.1".parse().unwrap()));
        assert!(is_local("::1".parse().unwrap()));
        assert!(!is_local("192.0.2.1".parse().unwrap()));
        assert!(!is_local("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn errors_and_ends() {
        let message = |kind: u16, code: i32| {
            [&20u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &code.to_ne_bytes()].concat()
        };
        assert_eq!(parse(&message(NLMSG_DONE, 0), &mut vec![]), Ok(true));
        assert_eq!(parse(&message(NLMSG_ERROR, -1), &mut vec![]), Err(Errno::PERM));
        assert_eq!(parse(&message(NLMSG_DONE, -2), &mut vec![]), Err(Errno::NOENT));
        assert_eq!(parse(&message(NLMSG_ERROR, i32::MIN), &mut vec![]), Err(Errno::BADMSG));
        assert_eq!(parse(&message(99, 0), &mut vec![]), Ok(false));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes, &mut vec![]);
            let _ = answer(&bytes);
            let _ = attribute(&bytes, 11);
        }

        #[test]
        fn any_body_in_a_sound_header(kind in 0u16..32, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let length = u32::try_from(bytes.len() + HEADER_BYTES).unwrap();
            let message = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &bytes].concat();
            let _ = parse(&message, &mut vec![]);
        }
    }
}

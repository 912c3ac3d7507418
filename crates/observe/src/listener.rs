//! Which listening sockets are the target's, and how full is the fullest?

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use model::observation::Listener;

use crate::reader::Error;
use crate::sock_diag::{self, Listening};

/// Where listening sockets are looked up; tests have their own.
pub(crate) trait Sockets {
    /// The sockets that listen on a port, at whatever address.
    fn listening(&self, port: u16) -> Result<Vec<Listening>, Error>;

    /// Whether an address is one of this machine's.
    fn is_local(&self, address: IpAddr) -> bool;
}

/// The kernel's answer.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Sockets for Kernel {
    fn listening(&self, port: u16) -> Result<Vec<Listening>, Error> {
        sock_diag::listening(port)
    }

    fn is_local(&self, address: IpAddr) -> bool {
        sock_diag::is_local(address)
    }
}

/// The sockets that take connections to one of the addresses.
pub(crate) fn of_target(sockets: &dyn Sockets, addresses: &[SocketAddr]) -> Result<Vec<Listening>, Error> {
    let mut found: Vec<Listening> = vec![];
    let ports: BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
    for port in ports {
        let all = sockets.listening(port)?;
        for address in addresses.iter().filter(|a| a.port() == port) {
            for socket in takes(&all, address.ip()) {
                if !found.iter().any(|f| f.inode == socket.inode) {
                    found.push(socket);
                }
            }
        }
    }
    Ok(found)
}

/// Those of a port's sockets that take connections to an address. As in the kernel, a socket bound to that
/// very address goes before one bound to all.
fn takes(all: &[Listening], address: IpAddr) -> Vec<Listening> {
    let address = match address.to_canonical() {
        // Connecting to "any address" connects to loopback.
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        other => other,
    };
    let exact: Vec<Listening> = all.iter().filter(|s| s.address.to_canonical() == address).copied().collect();
    if !exact.is_empty() {
        return exact;
    }
    all.iter()
        .filter(|s| match (s.address, address) {
            (IpAddr::V4(at), IpAddr::V4(_)) => at.is_unspecified(),
            (IpAddr::V6(at), IpAddr::V6(_)) => at.is_unspecified(),
            (IpAddr::V6(at), IpAddr::V4(_)) => at.is_unspecified() && !s.v6_only,
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        })
        .copied()
        .collect()
}

/// Sums up; `None` if there are none.
pub(crate) fn summary(sockets: &[Listening]) -> Option<Listener> {
    Some(Listener {
        sockets: sockets.len() as u64,
        queued: u64::from(sockets.iter().map(|s| s.queued).max()?),
        backlog: u64::from(sockets.iter().map(|s| s.backlog).min()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(address: &str, inode: u64, v6_only: bool) -> Listening {
        Listening { address: address.parse().unwrap(), port: 80, v6_only, inode, queued: 0, backlog: 0 }
    }

    fn inodes(all: &[Listening], address: &str) -> Vec<u64> {
        takes(all, address.parse().unwrap()).iter().map(|s| s.inode).collect()
    }

    #[test]
    fn the_exact_address_goes_first() {
        let all = [socket("0.0.0.0", 1, false), socket("10.0.0.1", 2, false), socket("::", 3, true)];
        assert_eq!(inodes(&all, "10.0.0.1"), [2]);
        assert_eq!(inodes(&all, "10.0.0.2"), [1]);
        assert_eq!(inodes(&all, "0.0.0.0"), [1]);
        assert_eq!(inodes(&all, "2001:db8::1"), [3]);
        assert_eq!(inodes(&all, "::ffff:10.0.0.1"), [2]);
    }

    #[test]
    fn a_dual_stack_socket_takes_ipv4() {
        assert_eq!(inodes(&[socket("::", 1, false)], "10.0.0.1"), [1]);
        assert_eq!(inodes(&[socket("::", 1, true)], "10.0.0.1"), [0; 0]);
        assert_eq!(inodes(&[socket("::1", 1, false)], "127.0.0.1"), [0; 0]);
        assert_eq!(inodes(&[socket("::ffff:10.0.0.1", 1, false)], "10.0.0.1"), [1]);
    }

    #[test]
    fn the_fullest_queue_and_the_smallest_backlog() {
        let mut all = [socket("0.0.0.0", 1, false), socket("0.0.0.0", 2, false)];
        all[0].queued = 7;
        all[0].backlog = 128;
        all[1].backlog = 511;
        assert_eq!(summary(&all), Some(Listener { sockets: 2, queued: 7, backlog: 128 }));
        assert_eq!(summary(&[]), None);
    }
}

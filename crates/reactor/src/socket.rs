//! How is a socket opened, bound, connected and listened on without paying for more than needed?

use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use model::{Failure, FailureKind};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// `IP_BIND_ADDRESS_NO_PORT` (ip(7), Linux 4.2): bind an address now, choose the port at `connect()`.
const IP_BIND_ADDRESS_NO_PORT: i32 = 24;
/// `IP_LOCAL_PORT_RANGE` (ip(7), Linux 6.3): the range, low half and high half of a u32, from which
/// `connect()` chooses this socket's port.
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The address to bind; `None`: the kernel's choice, and no `bind()` at all.
    pub address: Option<std::net::IpAddr>,
    /// The one port to use; `None`: the kernel searches.
    pub port: Option<u16>,
}

/// Opens a socket and starts to connect it; it becomes writable when the connection stands.
///
/// # Errors
/// `EADDRNOTAVAIL` if the port is taken for this destination (or none is left), `EMFILE`, `ENOBUFS`, and what
/// `connect(2)` says at once.
pub fn connect(to: SocketAddr, from: Source) -> Result<OwnedFd, Errno> {
    let socket = stream_socket(to)?;
    // A heartbeat behind an unacknowledged request must not wait for the peer's delayed ACK.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(address) = from.address {
        set_ip_option(&socket, IP_BIND_ADDRESS_NO_PORT, 1)?;
        net::bind(&socket, &SocketAddr::new(address, 0))?;
    }
    if let Some(port) = from.port {
        set_ip_option(&socket, IP_LOCAL_PORT_RANGE, u32::from(port) | u32::from(port) << 16)?;
    }
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Whether this kernel lets a socket name its own port range, so that ports can be chosen without a search.
pub fn can_choose_port(to: SocketAddr) -> bool {
    stream_socket(to).is_ok_and(|s| set_ip_option(&s, IP_LOCAL_PORT_RANGE, 0).is_ok())
}

/// Opens a listening socket that shares its port with other processes of the node (`SO_REUSEPORT`).
///
/// # Errors
/// What `bind(2)` and `listen(2)` say: `EADDRINUSE`, `EACCES` below port 1024.
pub fn listen(on: SocketAddr, backlog: u32, shared: bool) -> Result<OwnedFd, Errno> {
    let socket = stream_socket(on)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Inherited by what is accepted: one call here instead of one per connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    net::bind(&socket, &on)?;
    net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// The address that a socket is bound to.
///
/// # Errors
/// What `getsockname(2)` says.
pub fn local_address(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(net::getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)
}

fn stream_socket(peer: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

#[expect(unsafe_code, reason = "two socket options that no safe wrapper has yet")]
fn set_ip_option(socket: &OwnedFd, option: i32, value: u32) -> Result<(), Errno> {
    // SAFETY: the pointer is to a live u32 and the length is its size; the kernel only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// What an errno of `connect`, `recv` or `send` means for a connection.
pub fn failure(errno: Errno) -> Failure {
    let kind = match errno {
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => FailureKind::NoPorts,
        Errno::MFILE | Errno::NFILE => FailureKind::NoDescriptors,
        Errno::NOMEM | Errno::NOBUFS => FailureKind::NoMemory,
        Errno::CONNREFUSED => FailureKind::Refused,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN => FailureKind::Unreachable,
        Errno::TIMEDOUT => FailureKind::ConnectTimeout,
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => FailureKind::Reset,
        _ => FailureKind::Os,
    };
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    Failure::new(kind, text)
}

//! Which few things must be asked of the kernel beyond plain sockets? The only unsafe code of this program.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Lets `bind()` fix the source address and leave the port to `connect()`, which can then use each port once
/// per destination instead of once in all.
#[expect(unsafe_code, reason = "rustix has no call for IP_BIND_ADDRESS_NO_PORT")]
pub(crate) fn bind_without_port<Fd: AsFd>(socket: Fd) -> std::io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is borrowed for the length of the call, and the pointer and length describe `on`,
    // an int that outlives the call, which is what this option takes.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Raises the soft descriptor limit to the hard one and gives it.
pub(crate) fn raise_nofile() -> std::io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Seconds on the monotonic clock.
pub(crate) fn now() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

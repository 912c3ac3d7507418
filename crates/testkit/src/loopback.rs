//! Which port is free, and is somebody listening on it yet?

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// A port of 127.0.0.1 on which nobody listens, another one each time. It lies below the range from which the kernel
/// takes clients' ports, as tests that run beside each other open thousands of those.
///
/// # Errors
/// If no port is free.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u32 = 10_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let clients = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let room = u32::saturating_sub(clients, FIRST);
    // programs that run at the same time begin at different places
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..room {
        let step = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + begin.wrapping_add(step) % room) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until somebody accepts connections at `address`.
///
/// # Errors
/// The last refusal, if nobody does within `patience`.
pub fn wait_for(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let mut tries = patience.as_millis().div_ceil(PAUSE.as_millis()).max(1);
    loop {
        match TcpStream::connect_timeout(&address, patience.max(PAUSE)) {
            Ok(_) => return Ok(()),
            Err(e) => {
                tries -= 1;
                if tries == 0 {
                    return Err(io::Error::new(
                        e.kind(),
                        format!("nobody listens at {address} after {patience:?}: {e}"),
                    ));
                }
            }
        }
        sleep(PAUSE);
    }
}

/// Waits until somebody accepts connections on a port of 127.0.0.1.
///
/// # Errors
/// The last refusal, if nobody does within `patience`.
pub fn wait_for_port(port: u16, patience: Duration) -> io::Result<()> {
    wait_for((Ipv4Addr::LOCALHOST, port).into(), patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_had_and_waited_for() {
        let port = free_port().unwrap();
        let refused = wait_for_port(port, Duration::from_millis(30)).unwrap_err();
        assert!(refused.to_string().contains("nobody listens"), "{refused}");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        wait_for_port(port, Duration::from_secs(1)).unwrap();
    }
}
